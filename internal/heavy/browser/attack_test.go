package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/inspect"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// hostile returns texts that would run attack() if one of them were parsed as HTML or script.
func hostile(t *testing.T) []string {
	data, err := os.ReadFile("testdata/hostile.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		text := strings.TrimSuffix(line, "\n")
		for _, before := range []string{"", `">`, `'>`, "</script></textarea></title>-->", "]]>\u202e\u0000\n"} {
			out = append(out, before+text)
		}
	}
	if len(out) < 200 {
		t.Fatalf("there are only %d texts", len(out))
	}
	return out
}

const marker = "MARKER"

// attacked fills a store: a session for each text, and one with the events of all. The text is the name of a tool,
// a name and a value of its arguments, its result, a label, and what the user and the model say.
func attacked(t *testing.T, store session.Store, texts []string) {
	t.Helper()
	small := session.Memory()
	args := map[string]string{marker: marker}
	a := newAgent(t, []tool.Tool{look(t, marker, marker), write(t, "w"+marker, marker)},
		scripted.Say(marker).And(scripted.Call(marker, args)), scripted.Say(marker).And(scripted.Call("w"+marker, args)))
	converse(t, small, "x", a, map[string]string{"label": marker}, marker)
	rec := stored(t, small, "x")
	for i, ev := range rec.Events {
		rec.Events[i].Data = json.RawMessage(strings.Replace(string(ev.Data), `"type":"model_start"`,
			`"type":"model_start","groups":[{"name":"`+marker+`","open":true,"tools":1,"bytes":5,"about":9,"by":"`+marker+`"}]`, 1))
	}
	all := session.Record{Seq: 1, Whole: true, Status: session.StatusEnded}
	all.Data = json.RawMessage(strings.Replace(string(rec.Data), `"id":"x"`, `"id":"all"`, 1))
	for i, text := range texts {
		id := fmt.Sprintf("x-%03d", i)
		own := rec
		own.Data = replaced(t, json.RawMessage(strings.Replace(string(rec.Data), `"id":"x"`, `"id":"`+id+`"`, 1)), marker, text)
		own.Labels = map[string]string{"label": strings.ToValidUTF8(text, "?")}
		own.Events = nil
		for _, ev := range rec.Events {
			ev.Data = replaced(t, ev.Data, marker, text)
			own.Events = append(own.Events, ev)
			// In the session of all each text has messages and calls of its own.
			ev.Seq += int64(i) * 1000
			data := strings.ReplaceAll(string(ev.Data), "call_", fmt.Sprintf("call_%d_", i))
			ev.Data = json.RawMessage(strings.ReplaceAll(data, `"msg_`, fmt.Sprintf(`"msg_%d_`, i)))
			all.Events = append(all.Events, ev)
		}
		put(t, store, id, own)
	}
	put(t, store, "all", all)
}

// hostileGateways returns a gateway whose servers, groups, calls and changed tools are called by the texts.
func hostileGateways(texts []string) inspect.Options {
	var g inspect.Gateway
	var pins []inspect.Pin
	for _, text := range texts {
		g.Name = text
		g.Servers = append(g.Servers, inspect.GatewayServer{Name: text, State: text, Version: text, Protocol: text, Error: text})
		g.Groups = append(g.Groups, inspect.GatewayGroup{Name: text, Tools: []string{text}, Failed: []string{text}})
		g.Calls = append(g.Calls, inspect.GatewayCall{Tool: text, Credential: text, Rule: text, Outcome: text, Decision: permission.Behavior(text)})
		pins = append(pins, inspect.Pin{File: text, Server: text, Tool: text, Diff: text})
	}
	return inspect.Options{Gateways: func(context.Context) ([]inspect.Gateway, error) { return []inspect.Gateway{g}, nil },
		Pins: func(context.Context) ([]inspect.Pin, error) { return pins, nil }}
}

// TestAttacks shows hostile texts everywhere. No script runs, and no text becomes an element.
func TestAttacks(t *testing.T) {
	store, texts := session.Memory(), hostile(t)
	attacked(t, store, texts)
	tb := open(t, serve(t, store, hostileGateways(texts)))
	intact := func(where string) {
		t.Helper()
		bad := eval[[]string](tb, `[...document.querySelectorAll("script,img,svg,iframe,object,embed,form,style,link,base,meta,math,template,details,marquee,video,audio,body *")]
			.filter(e => !e.closest("head") && (!/^(A|MAIN|HEADER|NAV|P|DIV|SECTION|ARTICLE|H1|H2|H3|TABLE|THEAD|TBODY|TR|TH|TD|BUTTON|INPUT|LABEL|SPAN|STRONG|PRE|DL|DT|DD|UL|OL|LI|TEXTAREA|NOSCRIPT)$/.test(e.tagName) ||
				[...e.attributes].some(a => a.name.startsWith("on") || /^\s*(javascript|data):/i.test(a.value) && e.tagName !== "INPUT")) ||
				e.closest("head") && !/^(META|TITLE|LINK|SCRIPT)$/.test(e.tagName)).map(e => e.outerHTML.slice(0, 200))`)
		if len(bad) > 0 {
			t.Errorf("%s: %d elements were made of texts, such as %q", where, len(bad), bad[0])
		}
		if n := eval[int](tb, "window.attacked || 0"); n > 0 {
			t.Errorf("%s: a script ran", where)
		}
	}
	arm := "window.attack = () => { window.attacked = 1; }"
	eval[chromedp.Void](tb, arm)
	tb.await("all questions", fmt.Sprintf("document.querySelectorAll('.card').length === %d", len(texts)))
	tb.shows(texts[2])
	intact("the inbox")
	for range len(texts)/50 - 1 {
		n := eval[int](tb, "document.querySelectorAll('tbody tr').length")
		tb.click("Older sessions")
		tb.await("more sessions", fmt.Sprintf("document.querySelectorAll('tbody tr').length > %d", n))
	}
	intact("the list")
	tb.goTo("#/s/all")
	for last := false; !last; {
		tb.await("rows", "document.querySelector('tr.tool')")
		eval[chromedp.Void](tb, "document.querySelectorAll('button.toggle[aria-expanded=false]').forEach(b => b.click())")
		tb.await("the details", "!document.body.innerText.includes('Loading')")
		intact("the timeline")
		where := eval[string](tb, "document.querySelector('.tools [role=status]').innerText")
		var to, total int
		if _, err := fmt.Sscanf(where[strings.Index(where, "to"):], "to %d of %d", &to, &total); err != nil {
			t.Fatalf("%q: %v", where, err)
		}
		if last = to == total; !last {
			tb.click("Next")
			tb.await("the next rows", fmt.Sprintf("document.querySelector('.tools [role=status]').innerText.startsWith('Rows %d ')", to+1))
		}
	}
	tb.goTo("#/s/all/decisions")
	eval[chromedp.Void](tb, "document.querySelector('textarea').value = '{\"permissions\": {\"mode\": \"dont-ask\"}}'")
	tb.click("Judge all calls again")
	tb.shows("would be decided differently")
	intact("the decisions")
	tb.goTo("#/s/all/groups")
	tb.await("the groups", "document.querySelectorAll('tbody tr').length > 200")
	intact("the groups")
	tb.goTo("#/compare/x-010/x-020")
	tb.shows("rows differ")
	intact("a comparison")
	tb.goTo("#/gateways")
	tb.await("the pins", fmt.Sprintf("document.querySelectorAll('.card').length === %d", len(texts)))
	tb.await("the servers", "document.querySelectorAll('tbody tr').length > 200")
	intact("the gateways")
	tb.goTo("#/s/x-010")
	tb.shows("wants to run")
	intact("a session")
}

// TestAttackedExport opens a page that was exported with hostile texts. It has the elements of the export and no others.
func TestAttackedExport(t *testing.T) {
	texts := hostile(t)
	st := &agent.State{ID: "all"}
	for i, text := range texts {
		id := fmt.Sprint("call_", i)
		st.Messages = append(st.Messages, &message.Message{Role: message.RoleUser, Blocks: message.Blocks{&message.Text{Text: text}, &message.Hint{Text: text}, &message.Data{Name: text, MediaType: text}}},
			&message.Message{Role: message.RoleAssistant, Blocks: message.Blocks{&message.Thinking{Text: text}, &message.ToolCall{ID: id, Name: text, Input: []byte("{}")}}},
			&message.Message{Role: message.RoleTool, Blocks: message.Blocks{&message.ToolResult{ID: id, Name: text, Outcome: message.Outcome(text), Blocks: message.Blocks{&message.Text{Text: text}}}}})
	}
	data, err := st.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	store := session.Memory()
	put(t, store, "all", session.Record{Seq: 1, Whole: true, Status: session.StatusEnded, Data: data})
	text := eval[string](open(t, serve(t, store, inspect.Options{})), "fetch('api/sessions/all/export?as=html').then(r => r.text())")
	file := filepath.Join(t.TempDir(), "all.html")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	tb := open(t, "file://"+file)
	if n := eval[int](tb, "document.querySelectorAll('body section').length"); n != 6*len(texts) {
		t.Errorf("there are %d sections, want %d: %.200s", n, 6*len(texts), text)
	}
	bad := eval[[]string](tb, `[...document.querySelectorAll("body, body *")].filter(e => !/^(BODY|MAIN|H1|P|SECTION|STRONG|PRE)$/.test(e.tagName) || e.attributes.length)
		.concat([...document.querySelectorAll("head *")].filter(e => !/^(META|TITLE|STYLE)$/.test(e.tagName))).map(e => e.outerHTML.slice(0, 200))`)
	if len(bad) > 0 {
		t.Errorf("%d elements were made of texts, such as %q", len(bad), bad[0])
	}
}
