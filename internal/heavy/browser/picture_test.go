package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/inspect"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

var update = flag.Bool("update", false, "write the picture in README")

// picture is what README shows. It is looked at, not compared: fonts differ between machines.
const picture = "../../../docs/pictures/ui.webp"

// maxPicture is the size of a picture in bytes.
const maxPicture = 120 << 10

// An edit is a tool that shows its change when it asks.
type edit struct{ tool.Tool }

func (edit) Preview(context.Context, json.RawMessage) (string, error) {
	return "add.go\n-func Add(a, b int) int { return a - b }\n+func Add(a, b int) int { return a + b }\n", nil
}

// TestPicture shows a run that waits for approval; `make pictures` writes the picture of it.
func TestPicture(t *testing.T) {
	wait := func(d time.Duration, turn scripted.Turn) scripted.Turn { // as a model would
		return scripted.Func(func(*model.Request) (scripted.Turn, error) { time.Sleep(d); return turn, nil })
	}
	write, err := tool.New("Edit", "Edits a file.", func(context.Context, map[string]string) (string, error) { return "Edited.", nil }, tool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tk, err := toolkit.New(toolkit.Config{Basic: toolkit.Group{Tools: []tool.Tool{look(t, "Read", "package add"), edit{write}}},
		Groups: []toolkit.Group{{Name: "github", Description: "Issues and pull requests.", Tools: []tool.Tool{look(t, "github_issue", "Add(2, 1) is 1.")}}}})
	if err != nil {
		t.Fatal(err)
	}
	read := func(file string) scripted.Turn { return scripted.Call("Read", map[string]string{"file_path": file}) }
	m := scripted.New(wait(150*time.Millisecond, scripted.Call("reset_tools", map[string]bool{"github": true})),
		wait(90*time.Millisecond, scripted.Call("github_issue", map[string]string{"number": "7"}).And(read("add.go")).And(read("add_test.go"))),
		wait(120*time.Millisecond, scripted.Say("Add subtracts.").And(scripted.Call("Edit", map[string]string{"file_path": "add.go", "old_string": "a - b", "new_string": "a + b"}))))
	a, err := agent.New(agent.Config{Model: m, Toolkit: tk, Save: session.Save, Policy: permission.Policy{TrustReadOnly: true}})
	if err != nil {
		t.Fatal(err)
	}
	store := session.Memory()
	converse(t, store, "add", a, nil, "Issue 7 says that Add(2, 1) is 1. Find out why, and repair it.")
	tb := open(t, serve(t, store, inspect.Options{Keep: func(context.Context, string, []permission.Rule) error { return nil }}), scheme("light"),
		chromedp.EmulateViewport(1100, 1450))
	tb.goTo("#/s/add")
	tb.shows("Edit wants to run")
	tb.await("the timeline", "document.querySelectorAll('tr.tool').length === 5")
	shot := tb.screenshot()
	if kind := []byte("WEBP"); !bytes.Equal(shot[8:12], kind) || len(shot) > maxPicture {
		t.Errorf("the picture is of %d bytes, %q", len(shot), shot[:12])
	}
	if *update {
		if err := os.WriteFile(picture, shot, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(picture); err != nil || info.Size() > maxPicture {
		t.Errorf("README has no picture of the page, or one that is too large: %v; run make pictures", err)
	}
}

// screenshot returns a picture of the window.
func (tb *tab) screenshot() (shot []byte) {
	tb.Helper()
	tb.run(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		quality := int64(75)
		r, err := cdp.Call(ctx, target, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatWebp, Quality: &quality})
		shot = r.Data
		return err
	}))
	return shot
}
