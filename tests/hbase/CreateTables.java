import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.io.encoding.DataBlockEncoding;
import org.apache.hadoop.hbase.regionserver.BloomType;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Creates OpenTSDB's four tables with the settings of its own script, without compression: what an
 * operator does before the first TSD starts. Tables that exist are left as they are.
 *
 * <p>Arguments: names of the data, UID, tree and meta table. hbase-site.xml is on the class path.
 */
public final class CreateTables {
  public static void main(String[] names) throws Exception {
    if (names.length != 4) {
      throw new IllegalArgumentException("expected the names of the data, UID, tree and meta table");
    }
    Configuration configuration = HBaseConfiguration.create();
    try (Connection connection = ConnectionFactory.createConnection(configuration);
        Admin admin = connection.getAdmin()) {
      create(admin, names[0], 1, "t");
      create(admin, names[1], null, "id", "name");
      create(admin, names[2], 1, "t");
      create(admin, names[3], null, "name");
    }
  }

  private static void create(Admin admin, String name, Integer versions, String... families)
      throws Exception {
    TableName table = TableName.valueOf(name);
    if (admin.tableExists(table)) {
      return;
    }
    TableDescriptorBuilder builder = TableDescriptorBuilder.newBuilder(table);
    for (String family : families) {
      ColumnFamilyDescriptorBuilder column =
          ColumnFamilyDescriptorBuilder.newBuilder(Bytes.toBytes(family))
              .setBloomFilterType(BloomType.ROW)
              .setDataBlockEncoding(DataBlockEncoding.DIFF);
      if (versions != null) {
        column.setMaxVersions(versions);
      }
      builder.setColumnFamily(column.build());
    }
    admin.createTable(builder.build());
  }
}
