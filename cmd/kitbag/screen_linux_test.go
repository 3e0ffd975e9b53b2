package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"golang.org/x/sys/unix"

	"github.com/kitbag-go/kitbag/internal/openaitest"
)

var update = flag.Bool("update", false, "write the screens and texts of testdata anew")

// cursorReport is a terminal's report of the cursor's position.
var cursorReport = regexp.MustCompile(`\x1b\[[0-9]+;[0-9]+R`)

// A display is a terminal of some size, with kitbag in it.
type display struct {
	t   *testing.T
	cmd *exec.Cmd
	pty *os.File
	end chan struct{} // closed when nothing more is shown

	mu      sync.Mutex
	emu     *vt.Emulator
	changed chan struct{} // has an item after a change
	asked   int           // questions that the test has waited for

	reports atomic.Int64 // of the cursor's position; a question takes keys after two of them
	early   atomic.Bool  // a y is typed after the first report
}

// displayAt starts kitbag in a terminal without colour.
func displayAt(t *testing.T, columns, rows int, args ...string) *display {
	t.Helper()
	t.Setenv("NO_COLOR", "1")
	return colourDisplayAt(t, columns, rows, args...)
}

// colourDisplayAt starts kitbag in a terminal.
func colourDisplayAt(t *testing.T, columns, rows int, args ...string) *display {
	t.Helper()
	t.Setenv("TERM", "xterm-256color")
	d := &display{t: t, emu: vt.NewEmulator(columns, rows), changed: make(chan struct{}, 1), end: make(chan struct{})}
	d.cmd = exec.CommandContext(t.Context(), os.Args[0], args...)
	d.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	pty, tty := openPTY(t)
	d.pty = pty
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(columns)}); err != nil {
		t.Fatal(err)
	}
	d.cmd.Stdin, d.cmd.Stdout, d.cmd.Stderr = tty, tty, tty
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = tty.Close() // the command has it
	var readers sync.WaitGroup
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		_ = pty.Close()
		_ = d.emu.InputPipe().(io.Closer).Close() // ends reply; Close of the emulator would race with it
		readers.Wait()
	})
	readers.Go(d.show)
	readers.Go(d.reply)
	return d
}

// show writes what kitbag writes to the emulator.
func (d *display) show() {
	defer close(d.end)
	buf := make([]byte, 4096)
	for {
		n, err := d.pty.Read(buf)
		if err != nil { // EIO after the command has ended
			return
		}
		d.mu.Lock()
		_, _ = d.emu.Write(buf[:n])
		d.mu.Unlock()
		d.change()
	}
}

func (d *display) change() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// reply sends the emulator's replies, such as the position of the cursor. It must not wait for mu, which show holds
// while the emulator replies.
func (d *display) reply() {
	buf := make([]byte, 256)
	for {
		n, err := d.emu.Read(buf)
		if n > 0 {
			reports := int64(len(cursorReport.FindAll(buf[:n], -1)))
			_, _ = d.pty.Write(buf[:n])
			if reports > 0 && d.reports.Load() == 0 && d.early.Load() {
				_, _ = d.pty.WriteString("y")
			}
			d.reports.Add(reports)
			d.change()
		}
		if err != nil {
			return
		}
	}
}

// screen returns the text that was scrolled away and the text on the screen, without blank lines around it:
// how far a screen is scrolled depends on how fast it was drawn.
func (d *display) screen() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var lines []string
	for _, line := range d.emu.Scrollback().Lines() {
		lines = append(lines, line.String())
	}
	lines = append(lines, strings.Split(d.emu.String(), "\n")...)
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " \r")
	}
	cwd, err := os.Getwd()
	if err != nil {
		d.t.Fatal(err)
	}
	return strings.ReplaceAll(strings.Trim(strings.Join(lines, "\n"), "\n")+"\n", cwd, shownDir)
}

// expect waits until the screen has all texts.
func (d *display) expect(texts ...string) {
	d.t.Helper()
	d.wait(fmt.Sprintf("%q", texts), func(s string) bool {
		for _, text := range texts {
			if !strings.Contains(s, text) {
				return false
			}
		}
		return true
	})
}

// question waits until the next question takes keys and the screen has all texts. The texts alone do not tell: what was
// drawn for the question before may still be there.
func (d *display) question(texts ...string) {
	d.t.Helper()
	d.asked++
	d.wait(fmt.Sprintf("question %d", d.asked), func(string) bool { return d.reports.Load() >= int64(2*d.asked) })
	d.expect(texts...)
}

// ready waits until the prompt is shown.
func (d *display) ready() {
	d.t.Helper()
	d.wait("a prompt", func(s string) bool { return strings.Contains(s, "\n>\n") })
}

// idle waits until nothing is at work. A frame without the status may be one from before the work, so it types a
// letter: the frame that has it is newer than what was seen, and takes it back.
func (d *display) idle() {
	d.t.Helper()
	typed := func(s string) bool { return strings.HasSuffix(s, "x\n") }
	d.press("x")
	d.wait("the end of the work", func(s string) bool { return typed(s) && !strings.Contains(s, "Ctrl-C") })
	d.press("\x7f")
	d.wait("the prompt", func(s string) bool { return !typed(s) })
}

// wait waits until the screen is as ok says.
func (d *display) wait(what string, ok func(screen string) bool) {
	d.t.Helper()
	late := time.After(20 * time.Second)
	for {
		if ok(d.screen()) {
			return
		}
		select {
		case <-d.changed:
		case <-d.end:
			if !ok(d.screen()) {
				d.t.Fatalf("kitbag has ended without %s; the screen is\n%s", what, d.screen())
			}
			return
		case <-late:
			d.t.Fatalf("%s is not shown; the screen is\n%s", what, d.screen())
		}
	}
}

// ended waits for the end of kitbag.
func (d *display) ended() error {
	d.t.Helper()
	late := time.AfterFunc(20*time.Second, func() { _ = d.cmd.Process.Signal(syscall.SIGQUIT) }) // shows what it waits for
	defer late.Stop()
	return d.cmd.Wait()
}

// golden waits until the screen is that of a file.
func (d *display) golden(name string) {
	d.t.Helper()
	file := filepath.Join(testdata, "screens", name+".txt")
	if *update {
		time.Sleep(2 * time.Second) // until the screen is at rest
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			d.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(d.screen()), 0o644); err != nil {
			d.t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		d.t.Fatal(err)
	}
	d.wait("the screen of "+name+":\n"+string(want), func(s string) bool { return s == string(want) })
}

func (d *display) press(keys string) {
	d.t.Helper()
	if _, err := d.pty.WriteString(keys); err != nil {
		d.t.Fatal(err)
	}
}

// testdata is absolute, since tests change the directory.
var testdata, _ = filepath.Abs("testdata")

const (
	enter      = "\r"
	pasteStart = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
)

// shownDir is as long as the directory of eachSize.
const shownDir = "/tmp/kitbag00000000"

// sizes are the terminals that screens are compared at.
var sizes = []struct{ columns, rows int }{{80, 24}, {40, 15}}

// eachSize runs a test at each size, in a directory with a stable name.
func eachSize(t *testing.T, test func(t *testing.T, start func(args ...string) *display, golden func(*display, string))) {
	for _, size := range sizes {
		name := fmt.Sprintf("%dx%d", size.columns, size.rows)
		t.Run(name, func(t *testing.T) {
			workspace(t)
			// Of a length that does not change, as lines are broken there: the screen has shownDir in its place.
			dir := fmt.Sprintf("/tmp/kitbag%08d", os.Getpid()%1e8)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			t.Chdir(dir)
			test(t, func(args ...string) *display {
				return displayAt(t, size.columns, size.rows, append([]string{"chat"}, args...)...)
			}, func(d *display, what string) {
				d.t.Helper()
				d.golden(what + "-" + name)
			})
		})
	}
}

const report = `# Findings

There are **two** problems in ` + "`add.go`" + `:

1. It *subtracts*.
2. It has no test, see [the guide](https://example.org/guide).

` + "```go\nfunc add(a, b int) int {\n\treturn a - b\n}\n```" + `

| file | lines |
|---|---|
| add.go | 3 |

Shall I put it right? &#27;[31mred
`

// TestScreenAnswer shows an answer in Markdown, with the character reference of an escape in it.
func TestScreenAnswer(t *testing.T) {
	eachSize(t, func(t *testing.T, start func(...string) *display, golden func(*display, string)) {
		serve(t, openaitest.Text(report))
		d := start()
		d.ready()
		d.press("what is wrong?" + enter)
		d.expect("Shall I put it right?")
		d.idle()
		golden(d, "answer")
		d.press(ctrlD)
		if err := d.ended(); err != nil {
			t.Errorf("%v\n%s", err, d.screen())
		}
	})
}

// TestScreenApproval asks about an edit and a command. A key that was typed before a question is no answer.
func TestScreenApproval(t *testing.T) {
	eachSize(t, func(t *testing.T, start func(...string) *display, golden func(*display, string)) {
		dir, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "add.go")
		if err := os.WriteFile(file, []byte("package add\n\nfunc add(a, b int) int {\n\treturn a - b\n}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(configFile, []byte(`{"sandbox": {"use": "off"}}`), 0o600); err != nil { // not every system has one
			t.Fatal(err)
		}
		serve(t,
			openaitest.Calls(call("Read", fmt.Sprintf(`{"file_path":%q}`, file))),
			openaitest.Calls(call("TaskCreate", `{"subject":"Make it add","description":"x"}`)),
			openaitest.Calls(call("Edit", fmt.Sprintf(`{"file_path":%q,"old_string":"a - b","new_string":"a + b"}`, file))),
			openaitest.Calls(call("Bash", `{"command":"touch made"}`)),
			openaitest.Calls(call("Bash", `{"command":"touch made"}`)),
			openaitest.Calls(call("Bash", `{"command":"rm made"}`)),
			openaitest.Text("Done."))
		d := start("--trust")
		d.ready()
		d.press("put it right" + enter + "y") // the y is typed ahead: it is the beginning of the next message
		d.question("+        return a + b", "[y]es, once")
		golden(d, "change") // waits for the whole screen
		d.press("y")
		d.question("command=touch made", "Bash(touch made:*)")
		golden(d, "command")
		d.press("s")
		d.question("command=rm made", "Bash(rm made:*)")
		d.press("n")
		d.question("because")
		d.press("it is needed" + enter)
		d.expect("Done.", "> y")
		d.idle()
		golden(d, "refused")
		if _, err := os.Stat("made"); err != nil {
			t.Error(err)
		}
		d.press(ctrlC + ctrlC)
		if err := d.ended(); err != nil {
			t.Errorf("%v\n%s", err, d.screen())
		}
	})
}

// TestScreenProject keeps an edited rule in kitbag.json, and the next chat needs no question.
func TestScreenProject(t *testing.T) {
	dir := workspace(t)
	touch := func(name string) openaitest.Turn {
		return openaitest.Calls(call("Bash", `{"command":"touch `+name+`"}`))
	}
	serve(t, touch("a"), openaitest.Text("one"))
	d := displayAt(t, 80, 24, "chat")
	d.ready()
	d.press("go" + enter)
	d.question("[e]dit the rule")
	d.press("e")
	d.question("? Bash(touch")
	d.press("\x15Bash(rm:*)" + enter) // Ctrl-U empties the line
	d.question("does not allow this call", "? Bash(rm:*)")
	d.press("\x15Bash(touch *)" + enter)
	d.question("project: Bash(touch *)")
	d.press("p")
	d.expect("✓ Bash", "one")
	d.idle()
	d.press(ctrlD)
	if err := d.ended(); err != nil {
		t.Errorf("%v\n%s", err, d.screen())
	}
	data, err := os.ReadFile(filepath.Join(dir, "kitbag.json"))
	if want := "{\"permissions\": {\"allow\": [\"Bash(touch *)\"]}}\n"; err != nil || string(data) != want {
		t.Errorf("%v: kitbag.json is %q, want %q", err, data, want)
	}
	serve(t, touch("b"), openaitest.Text("two"))
	d = displayAt(t, 80, 24, "chat")
	d.ready()
	d.press("go" + enter)
	d.expect("✓ Bash", "two")
	d.idle()
	d.press(ctrlD)
	if err := d.ended(); err != nil {
		t.Errorf("%v\n%s", err, d.screen())
	}
}

// TestScreenEarlyKeys types a key while the question may not be on the screen yet: after the terminal's first report.
func TestScreenEarlyKeys(t *testing.T) {
	workspace(t)
	serve(t, openaitest.Calls(call("Bash", `{"command":"touch made"}`)), openaitest.Text("Not done."))
	d := displayAt(t, 80, 24, "chat")
	d.early.Store(true)
	d.ready()
	d.press("go" + enter)
	d.question("[n]o:")
	d.press("n")
	d.question("because")
	d.press(enter)
	d.expect("Not done.")
	d.idle()
	d.press(ctrlD)
	if err := d.ended(); err != nil {
		t.Errorf("%v\n%s", err, d.screen())
	}
	if _, err := os.Stat("made"); err == nil {
		t.Error("a key that was typed before the question was shown has answered it")
	}
}

// TestScreenInterrupt interrupts the work while something is typed, which is not sent.
func TestScreenInterrupt(t *testing.T) {
	workspace(t)
	s := serve(t, openaitest.Text("I was just about to say something").HangAfter(700), openaitest.Text("fine"))
	d := displayAt(t, 80, 24, "chat")
	d.ready()
	d.press("go" + enter)
	d.expect("I was", "Ctrl-C stops")
	d.press("half a mess")
	d.expect("> half a mess")
	d.press(ctrlC)
	d.expect("! interrupted", "> half a mess")
	d.press("age" + enter)
	d.expect("fine")
	d.idle()
	if got := s.Requests()[1].Messages; got[len(got)-1].Text() != "half a message" {
		t.Errorf("the model was sent %q", got[len(got)-1].Text())
	}
	d.press(ctrlC)
	d.expect("Ctrl-C again leaves")
	d.press(ctrlC)
	if err := d.ended(); err != nil {
		t.Errorf("%v\n%s", err, d.screen())
	}
}

// TestScreenPaste pastes several lines, and gets them again from the history of the next chat, without the secret.
func TestScreenPaste(t *testing.T) {
	workspace(t)
	secret := "ghp_" + strings.Repeat("a1B2", 9)
	s := serve(t, openaitest.Text("read"))
	d := displayAt(t, 80, 24, "chat")
	d.ready()
	d.press(pasteStart + "one\r\ntwo\r\nthree " + secret + pasteEnd)
	d.expect("> one", "  two", "  three")
	d.press(enter)
	d.expect("read")
	d.idle()
	if n := len(s.Requests()); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
	if got := s.Requests()[0].Messages; got[len(got)-1].Text() != "one\ntwo\nthree "+secret {
		t.Errorf("the model was sent %q", got[len(got)-1].Text())
	}
	d.press(ctrlD)
	if err := d.ended(); err != nil {
		t.Fatal(err)
	}
	d = displayAt(t, 80, 24, "chat")
	d.ready()
	d.press("\x1b[A")
	d.expect("> one", "  two", "  three [redacted")
	d.press(ctrlC + ctrlC)
	if err := d.ended(); err != nil {
		t.Errorf("%v\n%s", err, d.screen())
	}
}

// TestScreenTerminated sends SIGTERM in the middle of an answer.
func TestScreenTerminated(t *testing.T) {
	workspace(t)
	serve(t, openaitest.Text("I was just about to say something").HangAfter(700))
	d := displayAt(t, 80, 24, "chat")
	d.ready()
	d.press("go" + enter)
	d.expect("I was", "Ctrl-C stops")
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := d.ended(); d.cmd.ProcessState.ExitCode() != exitInterrupted {
		t.Errorf("%v\n%s", err, d.screen())
	}
}

// TestScreenResize makes the terminal narrow while text is typed.
func TestScreenResize(t *testing.T) {
	workspace(t)
	serve(t)
	d := displayAt(t, 80, 24, "chat")
	d.ready()
	d.press("Zwölf Boxkämpfer jagen 漢字 quer über den Sylter Deich, wie immer")
	d.expect("Deich, wie immer")
	d.mu.Lock()
	d.emu.Resize(40, 15)
	d.mu.Unlock()
	if err := unix.IoctlSetWinsize(int(d.pty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 15, Col: 40}); err != nil {
		t.Fatal(err)
	}
	d.expect("> Zwölf Boxkämpfer jagen 漢字 quer\n  über den Sylter Deich, wie immer")
	d.press(ctrlC + ctrlC)
	if err := d.ended(); err != nil {
		t.Errorf("%v\n%s", err, d.screen())
	}
}

// TestScreenSessions continues conversations that were kept by themselves.
func TestScreenSessions(t *testing.T) {
	workspace(t)
	leave := func(d *display) {
		t.Helper()
		d.idle()
		d.press(ctrlD)
		if err := d.ended(); err != nil {
			t.Errorf("%v\n%s", err, d.screen())
		}
	}
	say := func(d *display, message, answer string) {
		t.Helper()
		d.ready()
		d.press(message + enter)
		d.expect("> "+message, answer)
		d.idle()
	}
	s := serve(t, openaitest.Text("one"), openaitest.Text("two"), openaitest.Text("three"), openaitest.Text("four"))
	d := displayAt(t, 80, 24, "chat")
	say(d, "first", "one")
	d.press("/clear" + enter)
	d.expect("a new conversation")
	d.press("/model other" + enter)
	d.expect("model: other")
	say(d, "second", "two")
	d.press("/bogus" + enter)
	d.expect("/bogus is not a command")
	d.press("/export talk.md" + enter)
	d.expect("written to talk.md")
	leave(d)
	if data, err := os.ReadFile("talk.md"); err != nil || string(data) != "## User\n\nsecond\n\n## Agent\n\ntwo\n\n" {
		t.Errorf("%v: exported %q", err, data)
	}

	d = displayAt(t, 80, 24, "chat", "--continue")
	d.expect("after 2 messages", "> second", "two")
	say(d, "third", "three")
	leave(d)

	d = displayAt(t, 80, 24, "chat", "--resume")
	d.question("  second", "  first", "Which conversation?")
	d.press("2" + enter)
	d.expect("after 2 messages", "> first", "one")
	say(d, "fourth", "four")
	leave(d)

	var sent []string
	for _, r := range s.Requests() {
		var texts []string
		for _, m := range r.Messages[1:] {
			texts = append(texts, m.Text())
		}
		sent = append(sent, r.Model+": "+strings.Join(texts, ", "))
	}
	if got, want := strings.Join(sent, "; "), "test: first; other: second; test: second, two, third; test: first, one, fourth"; got != want {
		t.Errorf("the model was sent %s; want %s", got, want)
	}
}

// TestScreenCommands types commands while a group of an MCP server is open.
func TestScreenCommands(t *testing.T) {
	eachSize(t, func(t *testing.T, start func(...string) *display, golden func(*display, string)) {
		file := filepath.Join(os.Getenv("HOME"), "servers.json")
		writeServers(t, file, map[string]any{"demo": self(t, "--demo")})
		serve(t, openaitest.Calls(call("reset_tools", `{"demo":true}`)), openaitest.Text("It is open.").Usage(openaitest.Usage{Prompt: 9000, Cached: 8000, Completion: 5}))
		d := start("--mcp", file, "--deny", "Bash(rm:*)")
		d.ready()
		d.press("open it" + enter)
		d.expect("It is open.")
		d.idle()
		for _, line := range []string{"/tools", "/mode", "/mode explore", "/permissions", "/cost", "/diff", "/undo", "/model", "/bogus"} {
			d.press(line + enter)
			d.idle()
		}
		d.expect("/bogus is not a command", "/exit")
		golden(d, "commands")
		d.press("/to\t")
		d.expect("> /tools")
		d.press(enter + "/exit" + enter)
		if err := d.ended(); err != nil {
			t.Errorf("%v\n%s", err, d.screen())
		}
		if s := d.screen(); !strings.Contains(s, "in each request") {
			t.Errorf("/tools is not shown:\n%s", s)
		}
	})
}

// TestScreenNotices shows a retry, a fallback and a compaction, and a checklist.
func TestScreenNotices(t *testing.T) {
	workspace(t)
	long := strings.Repeat("many words ", 200)
	down := openaitest.Status(503, `{"error":{"message":"down for a while"}}`)
	serve(t, down, down, openaitest.Calls(call("TaskCreate", `{"subject":"Make it add","description":"x"}`)),
		openaitest.Calls(call("TaskUpdate", `{"task_id":"1","status":"completed"}`)), openaitest.Text(long),
		openaitest.Text("well"), openaitest.Text("They talked."))
	d := displayAt(t, 80, 24, "chat", "--fallback", "second")
	d.ready()
	d.press("go" + enter)
	d.expect("trying again in", "! test failed:", "second answers instead", "☐ 1 Make it add", "☑ 1 Make it add")
	d.idle()
	d.press("and?" + enter)
	d.expect("well")
	d.idle()
	d.press("/compact" + enter)
	d.expect("the conversation was compacted: from about")
	d.idle()
	d.press(ctrlD)
	if err := d.ended(); err != nil {
		t.Errorf("%v\n%s", err, d.screen())
	}
}
