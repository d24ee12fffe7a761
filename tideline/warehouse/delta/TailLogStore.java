package tideline;

import io.delta.storage.HDFSLogStore;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Lists the log of a Delta table in a local folder from a version on, and looks at no other file.
 *
 * Delta's own store asks for size and time of every file of the folder, some five times a merge:
 * behind a thousand commits that is a third of a small one's time or more. Here a folder's names
 * are read, and a file is looked at when its turn comes. Entries are written as Delta's store does.
 *
 * Single imports and no lambdas: Spark's own small compiler makes the class (see `log_store.py`).
 */
public class TailLogStore extends HDFSLogStore {
  public TailLogStore(Configuration configuration) {
    super(configuration);
  }

  @Override
  public Iterator<FileStatus> listFrom(Path path, Configuration settings) throws IOException {
    FileSystem files = path.getFileSystem(settings);
    String[] names = null;
    if (files instanceof LocalFileSystem) {
      File folder = ((LocalFileSystem) files).pathToFile(path.getParent());
      names = folder.list();
    }
    if (names == null) {
      return super.listFrom(path, settings);
    }
    String first = path.getName();
    List<String> kept = new ArrayList<String>();
    for (int index = 0; index < names.length; index++) {
      String name = names[index];
      if (name.compareTo(first) >= 0 && !ChecksumFileSystem.isChecksumFile(plain(name))) {
        kept.add(name);
      }
    }
    Collections.sort(kept);
    return new Found(files, path.getParent(), kept.iterator());
  }

  /** Returns the name as a path that has no scheme, whatever colons are in it. */
  private static Path plain(String name) {
    return new Path(null, null, name);
  }

  /** Those of the names whose files are there when their turn comes: a cleanup may delete some. */
  private static class Found implements Iterator<FileStatus> {
    private final FileSystem files;
    private final Path folder;
    private final Iterator<String> names;
    private FileStatus next;

    Found(FileSystem files, Path folder, Iterator<String> names) {
      this.files = files;
      this.folder = folder;
      this.names = names;
    }

    public boolean hasNext() {
      while (this.next == null && this.names.hasNext()) {
        Path name = plain((String) this.names.next());
        try {
          this.next = this.files.getFileStatus(new Path(this.folder, name));
        } catch (FileNotFoundException deleted) {
          continue;
        } catch (IOException failure) {
          throw new UncheckedIOException(failure);
        }
      }
      return this.next != null;
    }

    public FileStatus next() {
      if (!this.hasNext()) {
        throw new NoSuchElementException();
      }
      FileStatus found = this.next;
      this.next = null;
      return found;
    }
  }
}
