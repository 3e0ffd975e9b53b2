package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/message"
)

// keepConversation saves a conversation of the current directory that was last used days ago.
func keepConversation(t *testing.T, id string, days int) {
	t.Helper()
	dir, err := keptDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, more := range []string{".json.results", ".json.events", ".results"} {
		if err := os.MkdirAll(filepath.Join(dir, id+more), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, id+".json.imported"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := openSession(t, filepath.Join(dir, id))
	s.Messages = append(s.Messages, message.User("about "+id))
	if err := s.session.Save(t.Context(), s.State); err != nil {
		t.Fatal(err)
	}
	used := time.Now().Add(-time.Duration(days)*24*time.Hour - time.Minute)
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(dir, id+".jsonl"), used, used); err != nil {
		t.Fatal(err)
	}
}

// TestPrune has conversations by the days since they were used, and those that stay.
func TestPrune(t *testing.T) {
	for _, row := range []struct {
		settings *retention
		days     []int
		open     int // the days of one that is open; -1 for none
		want     string
	}{
		{nil, []int{0, 1, 89, 90, 400}, -1, "0 1 89"},
		{&retention{Keep: 2}, []int{5, 3, 4}, -1, "3 4"},
		{&retention{Days: 4}, []int{5, 3, 4}, -1, "3"},
		{&retention{Keep: 1}, []int{5, 3, 4}, 5, "3 5"},
		{&retention{Keep: 1, Days: 1}, nil, -1, ""},
	} {
		workspace(t)
		for _, days := range row.days {
			keepConversation(t, fmt.Sprint(days), days)
		}
		dir, _, err := keptSessions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if row.open >= 0 {
			s := openSession(t, filepath.Join(dir, fmt.Sprint(row.open)))
			t.Cleanup(func() { _ = s.close() })
		}
		if err := row.settings.prune(t.Context(), time.Now()); err != nil {
			t.Errorf("%+v: %v", row, err)
		}
		_, left, err := keptSessions(t.Context())
		if got := strings.Join(left, " "); err != nil || got != row.want {
			t.Errorf("%+v: %s are left, %v", row, got, err)
		}
		if all, _ := filepath.Glob(filepath.Join(dir, "*")); len(all) != 5*len(left) {
			t.Errorf("%+v: %q are left", row, all)
		}
	}
}

// TestPruneElsewhere removes an old conversation of another directory, but not for its number.
func TestPruneElsewhere(t *testing.T) {
	workspace(t)
	for _, days := range []int{1, 2, 100} {
		keepConversation(t, fmt.Sprint(days), days)
	}
	dir, _, err := keptSessions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if err := (&retention{Keep: 1}).prune(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if len(files) != 2 {
		t.Errorf("left are %q", files)
	}
}

// TestSessionsNeedAFolder has a state directory that cannot be made, like a user whose home is read-only.
func TestSessionsNeedAFolder(t *testing.T) {
	workspace(t)
	writeConfig(t, "file", "")
	_, err := newSession(filepath.Join("file", "x"), nil, time.Now())
	if err == nil || !strings.Contains(err.Error(), "keep the conversation: ") || !strings.Contains(err.Error(), "XDG_STATE_HOME") {
		t.Error(err)
	}
}

// TestSessionsCommand lists conversations and removes them.
func TestSessionsCommand(t *testing.T) {
	workspace(t)
	for _, row := range []struct {
		args []string
		code int
		says string // in the output or the errors
		left string
	}{
		{[]string{"list"}, exitDone, "a   1 messages  about a\nbb  1 messages  about bb\nc   1 messages  about c\n", "a bb c"},
		{[]string{"remove"}, exitUsage, "name the conversations to remove, or add --all", "a bb c"},
		{[]string{"remove", "--all", "a"}, exitUsage, "name the conversations to remove, or add --all", "a bb c"},
		{[]string{"remove", "a", "../bb"}, exitUsage, "../bb: no such conversation in this directory", "a bb c"},
		{[]string{"remove", "bb"}, exitDone, "", "a c"},
		{[]string{"list", "--json"}, exitDone, `"id": "a",` + "\n    \"messages\": 1,\n    \"first\": \"about a\"", "a c"},
		{[]string{"remove", "--all"}, exitDone, "", ""},
		{[]string{"list"}, exitDone, "no conversation of this directory is kept", ""},
		{[]string{"list", "--json"}, exitDone, "[]\n", ""},
	} {
		if row.left == "a bb c" {
			for i, id := range []string{"a", "bb", "c"} {
				if _, ids, err := keptSessions(t.Context()); err != nil || !slices.Contains(ids, id) {
					keepConversation(t, id, i)
				}
			}
		}
		got := kitbag(t.Context(), append([]string{"sessions"}, row.args...)...)
		if got.code != row.code || !strings.Contains(got.out+got.stderr, row.says) {
			t.Errorf("%q: %+v", row.args, got)
		}
		if _, ids, err := keptSessions(t.Context()); err != nil || strings.Join(ids, " ") != row.left {
			t.Errorf("%q: %q are left, %v", row.args, ids, err)
		}
	}
	writeConfig(t, userConfig(t), `{"sessions":{"keep":7}}`)
	if got := kitbag(t.Context(), "doctor", "--model", "test"); !strings.Contains(got.out, "0 conversations of this directory are kept; chats keep the last 7, for 90 days") {
		t.Errorf("%+v", got)
	}
	for config, want := range map[string]string{`{"sessions":{"keep":-1}}`: "sessions must be like", `{"sessions":{"most":1}}`: "sessions must be like"} {
		writeConfig(t, userConfig(t), config)
		if got := kitbag(t.Context(), "doctor"); !strings.Contains(got.out, want) {
			t.Errorf("%s: %+v", config, got)
		}
	}
	writeConfig(t, userConfig(t), `{}`)
	writeConfig(t, configFile, `{"sessions":{"keep":1}}`)
	if got := kitbag(t.Context(), "doctor", "--trust"); !strings.Contains(got.out, "a project cannot set sessions") {
		t.Errorf("a project: %+v", got)
	}
}
