import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** Command line, output and parent process handling shared by all programs. */
final class Terminal {
    // The clients of both versions may print to System.out: our lines go to the one of the start.
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    /** A program's body. */
    interface Work {
        void run() throws Exception;
    }

    private Terminal() {
    }

    /** Runs a program's body, then ends the program even if client threads remain. */
    static void run(Work work) {
        int status = 0;
        try {
            work.run();
        } catch (Throwable error) {
            error.printStackTrace();
            status = 1;
        }
        System.exit(status);
    }

    /** Reads "--name value" pairs; a name without a value is "true". Moves System.out out of the way. */
    static Map<String, String> options(String[] args) {
        System.setOut(System.err);
        if (Boolean.getBoolean("peer.lifeline")) {
            endWithParent();
        }
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i < args.length; i++) {
            if (!args[i].startsWith("--")) {
                throw new IllegalArgumentException("expected --name value, not " + args[i]);
            }
            boolean hasValue = i + 1 < args.length && !args[i + 1].startsWith("--");
            options.put(args[i].substring(2), hasValue ? args[++i] : "true");
        }
        return options;
    }

    /** Ends this program at the end of standard input, when the parent process has gone. */
    private static void endWithParent() {
        Thread lifeline = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (IOException error) {
                System.err.println(error);
            }
            Runtime.getRuntime().halt(1);
        }, "lifeline");
        lifeline.setDaemon(true);
        lifeline.start();
    }

    /** Prints one JSON object on a line: names and values in turn. */
    static void print(Object... namesAndValues) {
        Map<String, Object> object = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            object.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        OUT.println(json(object));
    }

    private static String json(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof Map<?, ?> map) {
            StringBuilder text = new StringBuilder("{");
            map.forEach((name, item) ->
                text.append(text.length() > 1 ? "," : "").append(quoted(name.toString())).append(':').append(json(item)));
            return text.append('}').toString();
        }
        if (value instanceof List<?> list) {
            return list.stream().map(Terminal::json).collect(Collectors.joining(",", "[", "]"));
        }
        return quoted(value.toString());
    }

    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else if (c < ' ' || c > '~') {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }
}
