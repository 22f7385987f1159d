import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.Map;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Signs one request and prints its frame: {"frame": Base64}. Nothing is sent.
 * Options: --access-key KEY, --secret-key KEY, and optionally --security-token TOKEN, --code N,
 * --body-base64 BYTES, --field.NAME VALUE (any number).
 */
public class Sign {
    public static void main(String[] args) {
        Map<String, String> options = Terminal.options(args);
        Terminal.run(() -> sign(options));
    }

    private static void sign(Map<String, String> options) {
        int code = Integer.parseInt(options.getOrDefault("code", "310"));
        RemotingCommand request = RemotingCommand.createRequestCommand(code, null);
        options.forEach((name, value) -> {
            if (name.startsWith("field.")) {
                request.addExtField(name.substring("field.".length()), value);
            }
        });
        if (options.containsKey("body-base64")) {
            request.setBody(Base64.getDecoder().decode(options.get("body-base64")));
        }
        Access.hook(options).doBeforeRequest("127.0.0.1:10911", request);
        ByteBuffer frame = request.encode();
        byte[] bytes = new byte[frame.remaining()];
        frame.get(bytes);
        Terminal.print("frame", Base64.getEncoder().encodeToString(bytes));
    }
}
