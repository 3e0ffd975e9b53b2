package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kitbag-go/kitbag/internal/openaitest"
)

// A terminal is the user's side of a real terminal.
type terminal struct {
	*os.File
	t     *testing.T
	shown chan string
	seen  string // shown, but not yet expected
}

// startAt starts a command with a new controlling terminal.
func startAt(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	pty, tty := openPTY(t)
	term := &terminal{File: pty, t: t, shown: make(chan string, 1000)}
	t.Cleanup(func() { _ = term.Close() })
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err := cmd.Start()
	_ = tty.Close() // the command has it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	go func() {
		defer close(term.shown)
		buf := make([]byte, 4096)
		for {
			n, err := term.Read(buf)
			if err != nil { // EIO after the command has ended
				return
			}
			term.shown <- string(buf[:n])
		}
	}()
	return term
}

// openPTY opens a new terminal: the side of the user, and that of the program.
func openPTY(t *testing.T) (pty, tty *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "/dev/ptmx"), tty
}

// expect waits until the texts are shown, each after the one before.
func (term *terminal) expect(texts ...string) {
	term.t.Helper()
	for _, text := range texts {
		for {
			if _, after, ok := strings.Cut(term.seen, text); ok {
				term.seen = after
				break
			}
			more, ok := <-term.shown
			if !ok {
				term.t.Fatalf("%q is not shown; the output since the last match is %q", text, term.seen)
			}
			term.seen += more
		}
	}
}

func (term *terminal) press(keys string) {
	term.t.Helper()
	if _, err := io.WriteString(term, keys); err != nil {
		term.t.Fatal(err)
	}
}

const ctrlC, ctrlD = "\x03", "\x04"

// chatAt starts kitbag chat with plain lines.
func chatAt(t *testing.T, args ...string) (*terminal, *exec.Cmd) {
	t.Helper()
	t.Setenv("NO_COLOR", "1")
	return kitbagAt(t, append([]string{"chat", "--plain"}, args...)...)
}

// kitbagAt starts kitbag. It is killed after a minute, so that a test cannot hang.
func kitbagAt(t *testing.T, args ...string) (*terminal, *exec.Cmd) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	term := startAt(t, cmd)
	timeout := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { timeout.Stop() })
	return term, cmd
}

// TestChatAtATerminal interrupts a chat in every state: only an interrupt at the prompt ends it.
func TestChatAtATerminal(t *testing.T) {
	dir := workspace(t)
	touch := func(name string) openaitest.Turn {
		return openaitest.Calls(call("Bash", `{"command":"touch `+name+`"}`))
	}
	serve(t,
		openaitest.Text("I was just about to say something").HangAfter(700),
		openaitest.Calls(call("Bash", `{"command":"sleep 1000"}`)),
		touch("refused"),
		touch("made"), openaitest.Text("it is made"))
	term, cmd := chatAt(t, "--session", "s.json", "--allow", "Bash(sleep:*)")
	term.expect("/help lists", "> ")

	term.press("go\n") // interrupt the model
	term.expect("I was")
	term.press(ctrlC)
	term.expect("interrupted: finishing", "! interrupted", "\n> ")

	term.press("wait\n") // interrupt a process
	term.expect("→ Bash command=sleep 1000")
	term.press(ctrlC)
	term.expect("interrupted: finishing", "✗ Bash", "! interrupted", "\n> ")

	term.press("make it\n") // interrupt a question, which is not asked again
	term.expect("may Bash run?", "[n]o: ")
	term.press(ctrlC)
	term.expect("interrupted: finishing", "✗ Bash", "! interrupted", "\n> ")

	term.press("make it, please\ny\n") // the y is typed before the question is shown
	term.expect("may Bash run?", "[n]o: ")
	term.press("what?\ny\n")
	term.expect("answer y or n", "✓ Bash", "it is made", "\n> ")

	term.press("half a li" + ctrlC)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %q", err, term.seen)
	}
	for name, want := range map[string]bool{"made": true, "refused": false} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}

	serve(t, openaitest.Text("still here"))
	term, cmd = chatAt(t, "--session", "s.json")
	term.expect("continuing s.json", "> ")
	term.press("still there?\n")
	term.expect("still here", "\n> ")
	term.press(ctrlD)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %q", err, term.seen)
	}
}

// TestColour checks that colour is used only if the terminal supports it and NO_COLOR is not set.
func TestColour(t *testing.T) {
	workspace(t)
	for _, row := range []struct {
		noColour, term string
		want           bool
	}{{"", "xterm", true}, {"1", "xterm", false}, {"", "dumb", false}} {
		t.Setenv("NO_COLOR", row.noColour)
		t.Setenv("TERM", row.term)
		serve(t, openaitest.Calls(call("TaskList", `{}`)), openaitest.Text("well"))
		term, cmd := kitbagAt(t, "run", "go")
		all := ""
		for s := range term.shown {
			all += s
		}
		if err := cmd.Wait(); err != nil || strings.Contains(all, "\x1b") != row.want || !strings.Contains(all, "✓ TaskList") {
			t.Errorf("%+v: %v, %q", row, err, all)
		}
	}
}

// TestServeAtATerminal checks that a user who starts a server by hand sees what it waits for.
func TestServeAtATerminal(t *testing.T) {
	workspace(t)
	term, cmd := kitbagAt(t, "mcp", "serve", "--demo")
	term.expect("for an MCP host to start")
	term.press(ctrlD)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %q", err, term.seen)
	}
}

// TestDemoRefused answers no in the demo: the model's last answer says so.
func TestDemoRefused(t *testing.T) {
	workspace(t)
	term, cmd := kitbagAt(t, "demo", "--ask")
	term.expect("may Bash run?", "[n]o: ")
	term.press("n\n")
	term.expect("I was not allowed to write it down.")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestInterruptedRead interrupts a command that waits for input.
func TestInterruptedRead(t *testing.T) {
	workspace(t)
	term, cmd := kitbagAt(t, "permission", "explain", "--json")
	term.press("not JSON\n")
	term.expect("cannot be read")
	term.press(ctrlC)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitInterrupted {
		t.Errorf("%v: %q", err, term.seen)
	}
}

// TestSessionThatCannotBeSaved checks that kitbag fails before the model is called. No file can be created in /proc.
func TestSessionThatCannotBeSaved(t *testing.T) {
	workspace(t)
	s := serve(t)
	got := kitbag(t.Context(), "run", "--session", "/proc/s.json", "go")
	if got.code != exitError || !strings.Contains(got.stderr, "--session /proc/s.json") || len(s.Requests()) > 0 {
		t.Errorf("%+v", got)
	}
}

// TestChatIsTerminated sends SIGTERM in the middle of a turn.
func TestChatIsTerminated(t *testing.T) {
	workspace(t)
	serve(t, openaitest.Text("I was just about to say something").HangAfter(700))
	term, cmd := chatAt(t)
	term.expect("> ")
	term.press("go\n")
	term.expect("I was")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitInterrupted {
		t.Errorf("%v: %q", err, term.seen)
	}
}
