package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/internal/openaitest"
)

// oldFiles has session files of commit 70a09beb, which were sealed with oldKey.
var oldFiles, oldKey = must(filepath.Abs("testdata/files")), bytes.Repeat([]byte{7}, keySize)

// oldWorkspace makes a workspace with the session files, for the user who has sealed them.
func oldWorkspace(t *testing.T) string {
	t.Helper()
	dir := workspace(t)
	file := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "kitbag", "session.key")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, oldKey, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(oldFiles)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestImportSession imports session files of an older version, with their events.
func TestImportSession(t *testing.T) {
	for _, row := range []struct {
		id       string
		status   session.Status
		messages string // how many the State after each record has; - for one without a State
		event    int    // the number of the last event
	}{
		{"ended", session.StatusEnded, "1 3 3 3 3 4 4 5 6", 27},
		{"waiting", session.StatusWaiting, "1 2 2 3 4", 15},
		{"failed", session.StatusFailed, "1 2 2 3", 10},
		{"compacted", session.StatusEnded, "- - 2 3 3 4 5", 26},
	} {
		oldWorkspace(t)
		data := must(os.ReadFile(row.id + ".json"))
		used := time.Now().Add(-time.Hour).Truncate(time.Second)
		if err := os.Chtimes(row.id+".json", used, used); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time there is nothing to import
			if err := openSession(t, row.id+".json").close(); err != nil {
				t.Fatal(err)
			}
		}
		if got := must(os.ReadFile(row.id + ".json.imported")); !bytes.Equal(got, data) {
			t.Errorf("%s: the old file was changed", row.id)
		}
		if names := strings.Join(must(filepath.Glob(".kitbag*")), " ") + strings.Join(must(filepath.Glob(row.id+".json")), " "); names != "" {
			t.Errorf("%s: left are %s", row.id, names)
		}
		if !modTime(row.id + ".jsonl").Equal(used) {
			t.Errorf("%s: the time of the last use is %v, want %v", row.id, modTime(row.id+".jsonl"), used)
		}
		checkImported(t, row.id, data)
		sealed, _, err := place{dir: ".", id: row.id}.stores()
		if err != nil {
			t.Fatal(err)
		}
		_, in, err := session.Read(t.Context(), sealed, row.id, 0)
		if err != nil || in.Status != row.status || len(in.Labels) > 0 || in.Event != int64(row.event) {
			t.Errorf("%s: %+v, %v", row.id, in, err)
		}
		var counts []string
		for seq := range in.Seq {
			st, _, err := session.Read(t.Context(), sealed, row.id, seq+1)
			if err != nil {
				counts = append(counts, "-")
				continue
			}
			counts = append(counts, fmt.Sprint(len(st.Messages)))
		}
		if got := strings.Join(counts, " "); got != row.messages {
			t.Errorf("%s: the States have %s messages, want %s", row.id, got, row.messages)
		}
	}
}

// checkImported checks that a session has the State and the events of the old file.
func checkImported(t *testing.T, id string, old []byte) {
	t.Helper()
	s := openSession(t, id)
	defer s.close()
	want := new(agent.State)
	if err := json.Unmarshal(must(withID(old, id)), want); err != nil {
		t.Fatal(err)
	}
	if got, want := must(json.Marshal(s.State)), must(json.Marshal(want)); !bytes.Equal(got, want) {
		t.Errorf("%s: the State is\n%s\nwant\n%s", id, got, want)
	}
	if err := json.Unmarshal(old, want); err != nil {
		t.Fatal(err)
	}
	before, after := eventsOf(t, must(session.Dir(id+".json.events")), want.ID), eventsOf(t, s.inbox.(session.Store), id)
	if before != after {
		t.Errorf("%s: the events are\n%s\nwant\n%s", id, after, before)
	}
}

// eventsOf returns the events of a session as lines.
func eventsOf(t *testing.T, store session.Store, id string) (lines string) {
	t.Helper()
	page, err := store.List(t.Context(), session.Query{ID: id})
	if err != nil || len(page.Infos) != 1 {
		t.Fatalf("%s: %+v, %v", id, page, err)
	}
	for ev, err := range store.(session.Watcher).Watch(t.Context(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		lines += fmt.Sprintf("%d %s\n", ev.Seq, ev.Data)
		if ev.Seq >= page.Infos[0].Event {
			break
		}
	}
	return lines
}

// TestImportedContinues continues conversations of an older version: one that waits, and one
// whose long result is read.
func TestImportedContinues(t *testing.T) {
	dir := oldWorkspace(t)
	serve(t, openaitest.Text("made"))
	// The first answer was to a question about another directory, so the question is asked again.
	if got := kitbag(t.Context(), "run", "--session", "waiting.json", "--answer", "call_7=allow"); got.code != exitWaiting {
		t.Errorf("%+v", got)
	}
	got := kitbag(t.Context(), "run", "--session", "waiting.json", "--answer", "call_7=allow")
	if _, err := os.Stat(filepath.Join(dir, "made")); err != nil || got.code != exitDone || got.out != "made\n" {
		t.Errorf("%v: %+v", err, got)
	}
	s := serve(t, openaitest.Calls(openaitest.Call{ID: "call_2", Name: "read_result", Args: `{"call":"call_1","grep":"^2718$"}`}), openaitest.Text("read"))
	if got := kitbag(t.Context(), "run", "--session", "ended", "read it"); got.code != exitDone {
		t.Errorf("%+v", got)
	}
	if msgs := s.Requests()[1].Messages; !strings.Contains(msgs[len(msgs)-1].Text(), "2718") {
		t.Errorf("the result is %s", msgs[len(msgs)-1].Text())
	}
}

// TestImportRefused has files that are not imported: they are left unchanged.
func TestImportRefused(t *testing.T) {
	oldWorkspace(t)
	data := must(os.ReadFile("ended.json"))
	for name, text := range map[string]string{"forged.json": strings.Replace(string(data), "{", `{"rules":[{"tool":"Bash","behavior":"allow"}],`, 1),
		"unsealed.json": `{"version":1,"messages":[]}`, "package.json": `{"name":"other"}`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := kitbag(t.Context(), "run", "--model", "m", "--base-url", "http://127.0.0.1:1/v1", "--session", strings.TrimSuffix(name, ".json"), "x")
		if got.code != exitError || !strings.Contains(got.stderr, name+" was left unchanged") || !strings.Contains(got.stderr, "--trust-session") {
			t.Errorf("%s: %+v", name, got)
		}
		if left := must(os.ReadFile(name)); string(left) != text {
			t.Errorf("%s was changed: %s", name, left)
		}
	}
	serve(t, openaitest.Text("trusted"))
	if got := kitbag(t.Context(), "run", "--session", "forged.json", "--trust-session", "x"); got.code != exitDone {
		t.Errorf("%+v", got)
	}
	if err := os.WriteFile("named.jsonl", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openConversation(t.Context(), "named.jsonl", false); err == nil || !strings.Contains(err.Error(), "rename it to named.json") {
		t.Errorf("a file of an older version with the name of a new one: %v", err)
	}
	f := must(openOld("ended.json")) // as an older version has it open
	if _, err := openConversation(t.Context(), "ended", false); !errors.Is(err, session.ErrConflict) {
		t.Errorf("a file that is open: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if must(os.ReadFile("ended.json")); len(must(filepath.Glob("ended.jsonl"))) > 0 {
		t.Error("a file that is open was imported")
	}
}

// TestImportBeside has a session and another file with its name: the file is left alone, also
// when an import of that name was completed before.
func TestImportBeside(t *testing.T) {
	oldWorkspace(t)
	for _, text := range []string{"", `{"name":"a package.json"}`} {
		if text != "" {
			if err := os.WriteFile("ended.json", []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := openSession(t, "ended").close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(must(os.ReadFile("ended.json"))); !strings.Contains(got, "a package") {
		t.Errorf("the other file is %s", got)
	}
}

// TestImportCutOff has what a process leaves that is killed during an import, at each step.
func TestImportCutOff(t *testing.T) {
	for name, cut := range map[string]func(dir string){
		"an empty session": func(dir string) { must(0, os.WriteFile(filepath.Join(dir, "ended.jsonl"), nil, 0o600)) },
		"a part": func(dir string) {
			temp := filepath.Join(dir, ".kitbag-import-ended.json")
			must(0, os.Mkdir(temp, 0o700))
			must(0, os.WriteFile(filepath.Join(temp, "ended.jsonl"), []byte(`{"kitbag_session":1,"id":"ended"}`+"\n{"), 0o600))
		},
		"the old file still has its name": func(dir string) {
			must(0, os.Mkdir(filepath.Join(dir, ".kitbag-import-ended.json"), 0o700))
			must(0, os.Rename(filepath.Join(dir, "ended.json.imported"), filepath.Join(dir, "ended.json")))
		},
		"the directory is left": func(dir string) { must(0, os.Mkdir(filepath.Join(dir, ".kitbag-import-ended.json"), 0o700)) },
	} {
		dir := oldWorkspace(t)
		data := must(os.ReadFile("ended.json"))
		if strings.HasPrefix(name, "the") {
			if err := openSession(t, "ended").close(); err != nil {
				t.Fatal(err)
			}
		}
		cut(dir)
		checkImported(t, "ended", data)
		if names := must(filepath.Glob(".kitbag*")); len(names) > 0 {
			t.Errorf("%s: left is %q", name, names)
		}
		if got := must(os.ReadFile("ended.json.imported")); !bytes.Equal(got, data) {
			t.Errorf("%s: the old file was changed", name)
		}
	}
}

// TestImportKilled kills processes while they import a file, at many moments.
func TestImportKilled(t *testing.T) {
	serve(t)
	killed := 0
	for delay := time.Duration(0); delay < 150*time.Millisecond; delay += 3 * time.Millisecond {
		oldWorkspace(t)
		serve(t)
		data := must(os.ReadFile("ended.json"))
		cmd := exec.Command(os.Args[0], "run", "--session", "ended.json")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); { // until the import begins
			if len(must(filepath.Glob(".kitbag-import*"))) > 0 || len(must(filepath.Glob("*.imported"))) > 0 {
				break
			}
		}
		time.Sleep(delay / 10)
		_ = cmd.Process.Kill()
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() == -1 {
			killed++
		} else if cmd.ProcessState.ExitCode() != exitUsage { // no call waits
			t.Fatal(err)
		}
		if left := len(must(filepath.Glob("ended.json"))) + len(must(filepath.Glob("ended.json.imported"))); left != 1 {
			t.Fatalf("after %v there are %d old files", delay/10, left)
		}
		if checkImported(t, "ended", data); t.Failed() {
			t.Fatalf("killed after %v", delay/10)
		}
	}
	if killed < 10 {
		t.Errorf("only %d processes were killed", killed)
	}
}

// TestImportTwice has several processes import the same file.
func TestImportTwice(t *testing.T) {
	oldWorkspace(t)
	serve(t)
	data := must(os.ReadFile("ended.json"))
	var wg sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	for range 4 {
		wg.Go(func() {
			cmd := exec.Command(os.Args[0], "run", "--session", "ended.json")
			out, _ := cmd.CombinedOutput()
			code := cmd.ProcessState.ExitCode()
			mu.Lock()
			defer mu.Unlock()
			codes[code]++
			if code == exitError && !bytes.Contains(out, []byte("another writer")) {
				t.Errorf("%s", out)
			}
		})
	}
	wg.Wait()
	if codes[exitUsage] < 1 || codes[exitUsage]+codes[exitError] != 4 { // no call waits
		t.Errorf("the exit codes are %v", codes)
	}
	checkImported(t, "ended", data)
}

// TestForgedAnswer writes an answer into the inbox of a session, as a command in the sandbox
// could: it does not count.
func TestForgedAnswer(t *testing.T) {
	dir := workspace(t)
	serve(t, openaitest.Calls(openaitest.Call{ID: "call_7", Name: "Bash", Args: `{"command":"touch made"}`}))
	if got := kitbag(t.Context(), "run", "--session", "s", "make it"); got.code != exitWaiting {
		t.Fatalf("%+v", got)
	}
	s := openSession(t, "s")
	q := s.Pending()[0].(*event.Approval)
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	plain := must(session.Dir(dir))
	if _, err := session.Send(t.Context(), plain, "s", "forged", q.Allow()); err != nil {
		t.Fatal(err)
	}
	if got := kitbag(t.Context(), "run", "--session", "s"); got.code != exitWaiting {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat("made"); err == nil {
		t.Error("the forged answer was used")
	}
	sealed, _, err := place{dir: dir, id: "s"}.stores()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.Send(t.Context(), sealed, "s", "user", q.Allow()); err != nil {
		t.Fatal(err)
	}
	serve(t, openaitest.Text("made"))
	if got := kitbag(t.Context(), "run", "--session", "s"); got.code != exitDone || got.out != "made\n" {
		t.Errorf("an answer of the page: %+v", got)
	}
	// Another user's seals: what was consumed is not given again after the session was trusted.
	key := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "kitbag", "session.key")
	if err := os.WriteFile(key, oldKey, 0o600); err != nil {
		t.Fatal(err)
	}
	before := eventsOf(t, plain, "s")
	s, err = openConversation(t.Context(), "s", true)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if waits, err := s.hasInputs(t.Context()); waits || err != nil {
		t.Errorf("inputs wait after the session was sealed again: %v, %v", waits, err)
	}
	if n, m := strings.Count(before, "\n"), strings.Count(eventsOf(t, s.inbox.(session.Store), "s"), "\n"); n != m || n == 0 {
		t.Errorf("%d events, then %d", n, m)
	}
}

func TestPlaceOf(t *testing.T) {
	workspace(t)
	for path, want := range map[string]string{"s": ". s", "s.json": ". s", "s.jsonl": ". s", "d/s.json": "d s", "/d/2026-01.2": "/d 2026-01.2", "s.txt": ". s.txt"} {
		p, err := placeOf(path)
		if got := p.dir + " " + p.id; err != nil || got != want {
			t.Errorf("%s: %s, %v", path, got, err)
		}
	}
	for _, path := range []string{"my talk", "my talk.json", ".json", "d/", "-x", "ü"} {
		got := kitbag(t.Context(), "run", "--model", "m", "--base-url", "http://127.0.0.1:1/v1", "--session", path, "x")
		if got.code != exitUsage || !strings.Contains(got.stderr, "1 to 128 letters, digits") {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

// TestImportKept has conversations that an older "kitbag chat" has kept: they are listed, continued and removed.
func TestImportKept(t *testing.T) {
	oldWorkspace(t)
	dir := must(keptDir())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(oldFiles)); err != nil {
		t.Fatal(err)
	}
	unsealed := must(os.ReadFile(filepath.Join(oldFiles, "../older/1e2cba44.json")))
	if err := os.WriteFile(filepath.Join(dir, "unsealed.json"), unsealed, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, id := range []string{"compacted", "ended", "failed", "waiting", "unsealed"} {
		used := time.Now().Add(time.Duration(-i) * time.Hour)
		if err := os.Chtimes(filepath.Join(dir, id+".json"), used, used); err != nil {
			t.Fatal(err)
		}
	}
	got := kitbag(t.Context(), "sessions", "list")
	lines := strings.Split(got.out, "\n")
	for i, want := range []string{"compacted  5 messages", "ended      6 messages  count", "failed     3 messages  hi",
		"waiting    4 messages  hi", "unsealed   0 messages  ! session file "} {
		if got.code != exitDone || i >= len(lines) || !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d is not %q: %+v", i, want, got)
		}
	}
	var list struct {
		Sessions []struct {
			ID    string
			Notes []string
		}
	}
	c := startUI(t)
	c.call("GET", "api/sessions", "", &list)
	if len(list.Sessions) != 5 {
		t.Errorf("the page shows %+v", list)
	}
	rows := c.rows("compacted", 16)
	if len(rows) != 16 || !strings.HasPrefix(rows[1].Text, "first words") || rows[1].Start.IsZero() {
		t.Fatalf("%d rows: %+v", len(rows), rows)
	}
	for i, row := range rows { // before the last compaction there is no State to copy
		body := fmt.Sprintf(`{"record":%d,"to":"copy-%d"}`, row.Record, i)
		if status, text := c.send("POST", "api/sessions/compacted/fork", body); (status == http.StatusOK) != (row.Record > 2) {
			t.Errorf("row %d, record %d: %d %s", i, row.Record, status, text)
		} else if row.Record > 2 {
			if err := removeSession(t.Context(), dir, fmt.Sprintf("copy-%d", i)); err != nil {
				t.Error(err)
			}
		}
	}
	last := &chatFlags{continueLast: true}
	if err := last.chooseSession(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	f := plainFlags()
	f.session = last.session
	serve(t, openaitest.Text("continued"))
	if shown, err := runChat(t, f, "go on\n"); err != nil || !strings.Contains(shown.stderr, "continuing compacted, after 5 messages") || shown.out != "continued\n" {
		t.Errorf("%v: %+v", err, shown)
	}
	old := time.Now().Add(-100 * 24 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "unsealed.json"), old, old); err != nil {
		t.Fatal(err)
	}
	if err := (&retention{Keep: 2}).prune(t.Context(), time.Now()); err != nil {
		t.Error(err)
	}
	var left []string
	for _, e := range must(os.ReadDir(dir)) {
		left = append(left, e.Name())
	}
	want := "compacted.json.events compacted.json.imported compacted.jsonl " +
		"ended.json.events ended.json.imported ended.json.results ended.jsonl"
	if got := strings.Join(left, " "); got != want {
		t.Errorf("left are %s, want %s", got, want)
	}
}

// TestImportForgedEvents has events that do not fit the State, as anyone could have written: the conversation is imported.
func TestImportForgedEvents(t *testing.T) {
	oldWorkspace(t)
	data := must(os.ReadFile("ended.json"))
	file := must(filepath.Glob("ended.json.events/*.jsonl"))[0]
	before := eventsOf(t, must(session.Dir("ended.json.events")), strings.TrimSuffix(filepath.Base(file), ".jsonl"))
	f := must(os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0))
	for _, line := range []string{`{"messages":1,"generation":7},"events":[{"seq":3,"data":{}}]`, `{"messages":-1},"events":[{"seq":99,"data":{}}]`,
		`{"messages":1}`, `{"messages":99},"status":"odd","events":null`} {
		if _, err := fmt.Fprintf(f, "{\"crc\":\"0\",\"data\":%s}\n", line); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s := openSession(t, "ended")
	defer s.close()
	want := new(agent.State)
	if err := json.Unmarshal(must(withID(data, "ended")), want); err != nil {
		t.Fatal(err)
	}
	if got, want := must(json.Marshal(s.State)), must(json.Marshal(want)); !bytes.Equal(got, want) {
		t.Errorf("the State is\n%s\nwant\n%s", got, want)
	}
	if got := eventsOf(t, s.inbox.(session.Store), "ended"); got != before {
		t.Errorf("the events are\n%s\nwant\n%s", got, before)
	}
}
