"""Rows and documents in the indexes of OpenSearch or Elasticsearch."""
