import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Changes the regions of a table, and prints their number after that.
 *
 * <p>Arguments: `move TABLE`, each region to another region server; `split TABLE KEY`, the region that has the key (hexadecimal) there;
 * `merge TABLE`, the first two regions.
 */
public final class Regions {
  public static void main(String[] arguments) throws Exception {
    TableName table = TableName.valueOf(arguments[1]);
    try (Connection connection = ConnectionFactory.createConnection(HBaseConfiguration.create());
        Admin admin = connection.getAdmin();
        RegionLocator locator = connection.getRegionLocator(table)) {
      List<RegionInfo> regions = admin.getRegions(table);
      switch (arguments[0]) {
        case "move":
          for (RegionInfo region : regions) {
            move(admin, locator, region);
          }
          break;
        case "split":
          byte[] key = Bytes.fromHex(arguments[2]);
          RegionInfo parent = locator.getRegionLocation(key, true).getRegion();
          admin.splitRegionAsync(parent.getRegionName(), key).get();
          break;
        case "merge":
          byte[][] first = {regions.get(0).getRegionName(), regions.get(1).getRegionName()};
          admin.mergeRegionsAsync(first, false).get();
          break;
        default:
          throw new IllegalArgumentException(arguments[0] + ": expected move, split or merge");
      }
      System.out.println(admin.getRegions(table).size());
    }
  }

  private static void move(Admin admin, RegionLocator locator, RegionInfo region) throws Exception {
    ServerName now = locator.getRegionLocation(region.getStartKey(), true).getServerName();
    List<ServerName> others = new ArrayList<>(admin.getRegionServers());
    others.remove(now);
    Collections.shuffle(others);
    if (!others.isEmpty()) {
      admin.move(region.getEncodedNameAsBytes(), others.get(0));
    }
  }
}
