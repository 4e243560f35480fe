import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;

/**
 * Flushes a table and runs HBase's major compaction, which drops deleted cells; returns when it is complete.
 *
 * <p>Argument: the table's name. hbase-site.xml is on the class path.
 */
public final class Compact {
  public static void main(String[] names) throws Exception {
    if (names.length != 1) {
      throw new IllegalArgumentException("expected the name of a table");
    }
    TableName table = TableName.valueOf(names[0]);
    try (Connection connection = ConnectionFactory.createConnection(HBaseConfiguration.create());
        Admin admin = connection.getAdmin()) {
      admin.flush(table);
      long before = admin.getLastMajorCompactionTimestamp(table);
      admin.majorCompact(table);
      for (int step = 0; step < 600; step++) {
        boolean isIdle = admin.getCompactionState(table) == CompactionState.NONE;
        if (isIdle && (step >= 30 || admin.getLastMajorCompactionTimestamp(table) > before)) {
          return;
        }
        Thread.sleep(200);
      }
      throw new IllegalStateException("the major compaction takes too long");
    }
  }
}
