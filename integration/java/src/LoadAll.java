import java.io.File;
import java.util.zip.ZipEntry;
import java.util.zip.ZipFile;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/**
 * Loads the classes of the client, the tools and these programs, and their dependencies by using a producer. Java
 * writes them to a class data archive at exit. Needs no options and no cluster.
 */
public class LoadAll {
    private static final String CLOSED_PORT = "127.0.0.1:1";

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
        producer.setNamesrvAddr(CLOSED_PORT);
        producer.start();
        try {
            producer.send(new Message("LoadAll", new byte[1]));
        } catch (MQClientException | IllegalStateException expected) {
            System.err.println(expected.getMessage());
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
        } catch (LinkageError missingOptionalClass) {
            System.err.println(missingOptionalClass);
        }
    }
}
