package tideline;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Writes the entries of a Delta table's log to S3, each at most once among any number of drivers.
 *
 * Delta's own store for S3 guards an entry by a lock inside one Java process: of two drivers, the
 * later one replaces the commit of the earlier. Here S3 itself refuses a second object of a name
 * (If-None-Match). Where the answer to a successful request was lost, its repetition is refused
 * too: the entry is read back, and with our own bytes the commit was ours. That is certain because
 * each commit of Delta's holds a random id of its own, txnId.
 *
 * A log is listed from a version on: S3 gives a thousand names a request, and Delta's own store
 * asks for all of them, several times a merge.
 *
 * Single imports and no lambdas: Spark's own small compiler makes the class (see `log_store.py`).
 */
public class ConditionalLogStore extends HadoopFileSystemLogStore {
  private static final int ATTEMPTS_MAX = 8;
  private static final long FIRST_PAUSE_MS = 50L;
  private static final String LISTER = "io.delta.storage.internal.S3LogStoreUtil";
  private static final String CONDITIONAL = "fs.option.create.conditional.overwrite";

  public ConditionalLogStore(Configuration configuration) {
    super(configuration);
  }

  @Override
  public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration settings)
      throws IOException {
    byte[] entry = entryOf(actions);
    FileSystem files = path.getFileSystem(settings);
    if (overwrite.booleanValue()) {
      put(files, path, entry, false);
      return;
    }
    try {
      create(files, path, entry);
    } catch (IOException refusal) {
      if (!isRefusal(refusal)) {
        throw refusal;
      }
      if (!Arrays.equals(entry, read(files, path))) {
        FileAlreadyExistsException taken = new FileAlreadyExistsException(path.toString());
        taken.initCause(refusal);
        throw taken;
      }
    }
  }

  /** Creates the entry; asks again while S3 says that another request for it is under way. */
  private static void create(FileSystem files, Path path, byte[] entry) throws IOException {
    long pause = FIRST_PAUSE_MS;
    for (int attempt = 1; true; attempt++) {
      try {
        put(files, path, entry, true);
        return;
      } catch (IOException failure) {
        if (attempt == ATTEMPTS_MAX || !names(failure, "Status Code: 409")) {
          throw failure;
        }
      }
      try {
        Thread.sleep(pause);
      } catch (InterruptedException interruption) {
        Thread.currentThread().interrupt();
        throw new InterruptedIOException("interrupted while writing " + path);
      }
      pause = 2 * pause;
    }
  }

  @Override
  public Iterator<FileStatus> listFrom(Path path, Configuration settings) throws IOException {
    FileSystem files = path.getFileSystem(settings);
    Path first = files.makeQualified(path);
    Path folder = first.getParent();
    // VACUUM walks through the table's folders by this method, and wants what is below them apart.
    boolean isLog = "_delta_log".equals(folder.getName());
    boolean canList = settings.getInt("fs.s3a.list.version", 2) == 2;
    FileStatus[] found = isLog && canList ? listedByS3(files, first, folder) : null;
    if (found == null) {
      return super.listFrom(path, settings);
    }
    List<FileStatus> kept = new ArrayList<FileStatus>();
    for (int index = 0; index < found.length; index++) {
      Path one = found[index].getPath();
      if (folder.equals(one.getParent()) && one.getName().compareTo(first.getName()) >= 0) {
        kept.add(found[index]);
      }
    }
    if (kept.isEmpty() && !files.exists(folder)) {
      throw new FileNotFoundException("No such file or directory: " + folder);
    }
    return kept.iterator();
  }

  /**
   * Returns what S3 lists below the folder from that name on, in order; null without this client.
   *
   * By reflection: Delta's class names S3's client, which is not there where this one is compiled.
   */
  private static FileStatus[] listedByS3(FileSystem files, Path first, Path folder)
      throws IOException {
    try {
      Class<?>[] takes = {FileSystem.class, Path.class, Path.class};
      Method list = Class.forName(LISTER).getMethod("s3ListFromArray", takes);
      return (FileStatus[]) list.invoke(null, new Object[] {files, first, folder});
    } catch (InvocationTargetException failure) {
      Throwable cause = failure.getCause();
      if (cause instanceof IOException) {
        throw (IOException) cause;
      }
      if (cause instanceof UnsupportedOperationException || cause instanceof LinkageError) {
        return null;
      }
      throw new IOException(cause);
    } catch (ReflectiveOperationException otherRelease) {
      return null;
    } catch (LinkageError otherClient) {
      return null;
    }
  }

  @Override
  public Boolean isPartialWriteVisible(Path path, Configuration settings) {
    return Boolean.FALSE;
  }

  private static byte[] entryOf(Iterator<String> actions) {
    StringBuilder lines = new StringBuilder();
    while (actions.hasNext()) {
      lines.append((String) actions.next()).append('\n');
    }
    return lines.toString().getBytes(StandardCharsets.UTF_8);
  }

  private static void put(FileSystem files, Path path, byte[] entry, boolean conditional)
      throws IOException {
    FSDataOutputStreamBuilder builder = files.createFile(path);
    builder.overwrite(true);
    if (conditional) {
      builder.must(CONDITIONAL, true);
    }
    FSDataOutputStream stream = (FSDataOutputStream) builder.build();
    try {
      stream.write(entry);
    } catch (IOException failure) {
      stream.abort();
      throw failure;
    }
    stream.close();
  }

  private static byte[] read(FileSystem files, Path path) throws IOException {
    FSDataInputStream stream = files.open(path);
    try {
      return stream.readAllBytes();
    } finally {
      stream.close();
    }
  }

  /** Returns whether S3 refused the request because an object of that name was there. */
  private static boolean isRefusal(Throwable failure) {
    for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
      String kind = cause.getClass().getName();
      if (cause instanceof org.apache.hadoop.fs.FileAlreadyExistsException
          || kind.equals("org.apache.hadoop.fs.s3a.RemoteFileChangedException")) {
        return true;
      }
    }
    return names(failure, "Status Code: 412");
  }

  /** Returns whether the failure or one of its causes has the words in its message. */
  private static boolean names(Throwable failure, String words) {
    for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
      if (String.valueOf(cause.getMessage()).contains(words)) {
        return true;
      }
    }
    return false;
  }
}
