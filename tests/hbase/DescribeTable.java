import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Prints HBase's description of a table, as its shell does: its settings, then the first key of each
 * region. Thrift servers report less.
 *
 * <p>Argument: the table's name. hbase-site.xml is on the class path.
 */
public final class DescribeTable {
  public static void main(String[] names) throws Exception {
    if (names.length != 1) {
      throw new IllegalArgumentException("expected the name of a table");
    }
    TableName table = TableName.valueOf(names[0]);
    try (Connection connection = ConnectionFactory.createConnection(HBaseConfiguration.create());
        Admin admin = connection.getAdmin()) {
      TableDescriptor descriptor = admin.getDescriptor(table);
      System.out.println(descriptor);
      for (RegionInfo region : admin.getRegions(table)) {
        System.out.println("region from '" + Bytes.toStringBinary(region.getStartKey()) + "'");
      }
    }
  }
}
