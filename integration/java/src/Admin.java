import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs commands of mqadmin one after the other, and prints {"output": text} for each.
 * Options: --namesrv ADDRESS, --command "WORDS", with line breaks between several.
 */
public class Admin {
    public static void main(String[] args) {
        Map<String, String> options = Terminal.options(args);
        Terminal.run(() -> run(options));
    }

    private static void run(Map<String, String> options) throws Exception {
        System.setProperty("rocketmq.home.dir", home().toString());
        System.setProperty("rocketmq.namesrv.addr", options.get("namesrv"));
        for (String command : options.get("command").split("\n")) {
            ByteArrayOutputStream output = new ByteArrayOutputStream();
            PrintStream before = System.out;
            System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
            MQAdminStartup.main0(command.split(" "), null);
            System.setOut(before);
            Terminal.print("output", output.toString(StandardCharsets.UTF_8));
        }
    }

    /** Returns a folder with the one file that tools of 4.x want to find. */
    private static Path home() throws Exception {
        Path home = Files.createTempDirectory(Path.of(System.getProperty("user.home")), "tools");
        Path folder = Files.createDirectory(home.resolve("conf"));
        Files.writeString(folder.resolve("logback_tools.xml"), "<configuration/>");
        return home;
    }
}
