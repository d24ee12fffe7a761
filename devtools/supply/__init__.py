"""What Tideline is made of: images by digest, packages by hash, and the lists that say so."""
