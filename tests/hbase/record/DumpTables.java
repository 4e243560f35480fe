import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Prints the cells of tables, one a line: table, row key, family, qualifier and value, separated by tabs. Bytes
 * other than printable ASCII are written as {@code \xNN}, in HBase's own form.
 *
 * <p>Arguments: the tables' names. hbase-site.xml is on the class path.
 */
public final class DumpTables {
  public static void main(String[] names) throws Exception {
    try (Connection connection = ConnectionFactory.createConnection(HBaseConfiguration.create())) {
      for (String name : names) {
        try (ResultScanner rows = connection.getTable(TableName.valueOf(name)).getScanner(new Scan())) {
          for (Result row : rows) {
            for (Cell cell : row.rawCells()) {
              System.out.println(
                  String.join(
                      "\t",
                      name,
                      Bytes.toStringBinary(CellUtil.cloneRow(cell)),
                      Bytes.toStringBinary(CellUtil.cloneFamily(cell)),
                      Bytes.toStringBinary(CellUtil.cloneQualifier(cell)),
                      Bytes.toStringBinary(CellUtil.cloneValue(cell))));
            }
          }
        }
      }
    }
  }
}
