import java.io.File;
import java.io.FileOutputStream;
import java.io.OutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** A resource manager and node managers in one process. Writes their configuration to a folder when they serve. */
public class YarnCluster {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new YarnConfiguration();
        settings.set("fs.defaultFS", "file:///");
        settings.set("yarn.resourcemanager.hostname", "127.0.0.1");
        String scheduler = "yarn.scheduler.capacity.";
        settings.set(scheduler + "root.queues", "default");
        settings.set(scheduler + "root.acl_submit_applications", "*");
        settings.set(scheduler + "root.default.capacity", "100");
        settings.set(scheduler + "root.default.state", "RUNNING");
        settings.set(scheduler + "root.default.acl_submit_applications", "*");
        settings.set(scheduler + "maximum-am-resource-percent", "0.5");
        settings.set(scheduler + "node-locality-delay", "-1");
        settings.set("yarn.scheduler.minimum-allocation-mb", "128");
        String manager = "yarn.nodemanager.";
        settings.set(manager + "vmem-check-enabled", "false");
        settings.set(manager + "pmem-check-enabled", "false");
        settings.set(manager + "disk-health-checker.max-disk-utilization-per-disk-percentage", "100");
        MiniYARNCluster cluster = new MiniYARNCluster("spark", Integer.parseInt(arguments[1]), 1, 1);
        cluster.init(settings);
        cluster.start();
        while (cluster.getConfig().get(YarnConfiguration.RM_ADDRESS).endsWith(":0")) {
            Thread.sleep(50);
        }
        // Clients read the second file as the sign that both are complete.
        for (String name : new String[] {"core-site.xml", "yarn-site.xml"}) {
            File draft = new File(arguments[0], name + ".draft");
            try (OutputStream output = new FileOutputStream(draft)) {
                cluster.getConfig().writeXml(output);
            }
            draft.renameTo(new File(arguments[0], name));
        }
        Thread.currentThread().join();
    }
}
