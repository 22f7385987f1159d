import java.io.File;
import java.util.zip.ZipEntry;
import java.util.zip.ZipFile;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/**
 * Loads the classes of this client, of its tools and of these programs, and by using them those of what they need:
 * for an archive of classes, which Java writes at the end. No options, and no cluster.
 */
public class LoadAll {
    private static final String NOBODY = "127.0.0.1:1";

    public static void main(String[] args) {
        Terminal.options(args);
        Terminal.run(LoadAll::loadAll);
    }

    private static void loadAll() throws Exception {
        use();
        for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
            String name = new File(path).getName();
            if (name.matches("classes-.*|rocketmq-(client|common|remoting|tools)-.*")) {
                load(path);
            }
        }
    }

    private static void use() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("load-all");
        producer.setNamesrvAddr(NOBODY);
        producer.start();
        try {
            producer.send(new Message("LoadAll", new byte[1]));
        } catch (MQClientException | IllegalStateException nobodyIsThere) {
            System.err.println(nobodyIsThere.getMessage());
        }
        producer.shutdown();
    }

    private static void load(String path) throws Exception {
        try (ZipFile jar = new ZipFile(path)) {
            for (ZipEntry entry : (Iterable<ZipEntry>) jar.stream().map(ZipEntry.class::cast)::iterator) {
                if (entry.getName().endsWith(".class") && !entry.getName().contains("-")) {
                    load(entry);
                }
            }
        }
    }

    private static void load(ZipEntry entry) throws Exception {
        String name = entry.getName().replace('/', '.');
        try {
            Class.forName(name.substring(0, name.length() - ".class".length()), false, LoadAll.class.getClassLoader());
        } catch (LinkageError lacksWhatNobodyHereNeeds) {
            System.err.println(lacksWhatNobodyHereNeeds);
        }
    }
}
