package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kitbag-go/kitbag/internal/anthropictest"
)

// TestChatWithClaude talks over the Messages API at a terminal: text that streams, a question, and the conversation
// continued in another process.
func TestChatWithClaude(t *testing.T) {
	dir := workspace(t)
	serveClaude(t,
		anthropictest.Thinking("Make it.").Text("I make it.").Calls(anthropictest.Call{Name: "Bash", Args: `{"command":"touch made"}`}),
		anthropictest.Text("It is made."))
	term, cmd := chatAt(t, "--session", "s.json", "--thinking", "2000")
	term.expect("/help lists", "> ")
	term.press("make it\n")
	term.expect("I make it.", "may Bash run?", "[n]o: ")
	term.press("y\n")
	term.expect("✓ Bash", "It is made.", "\n> ")
	term.press(ctrlD)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %q", err, term.seen)
	}
	if _, err := os.Stat(filepath.Join(dir, "made")); err != nil {
		t.Error(err)
	}
	serveClaude(t, anthropictest.Text("as ever, and in good health").HangAfter(900))
	term, cmd = chatAt(t, "--session", "s.json", "--thinking", "2000")
	term.expect("continuing s.json", "> ")
	term.press("still there?\n")
	term.expect("as ever") // before the answer has ended
	term.press(ctrlC)
	term.expect("! interrupted", "\n> ")
	term.press(ctrlD)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %q", err, term.seen)
	}
}
