package toolkit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/toolkit"
)

// TestClosing checks the reported savings and costs of closing a group.
func TestClosing(t *testing.T) {
	db, web := group("db", "query", "shared"), group("web", "fetch")
	web.Tools = append(web.Tools, db.Tools[1])
	tk := newToolkit(t, toolkit.Config{Groups: []toolkit.Group{db, web, group("mail", "send")}})
	s := new(toolkit.Scope)
	if _, err := tk.Enable(t.Context(), s, "db", "web"); err != nil {
		t.Fatal(err)
	}
	v := newView(t, tk, s)
	size := map[string]int{}
	for _, c := range v.Cost().Tools {
		size[c.Name] = c.Bytes
	}
	for _, row := range []struct{ group, saved, reread string }{
		{"db", "query", "shared fetch"}, // shared stays, as web has it too
		{"web", "fetch", ""},
		{"mail", "", ""},
		{"none", "", ""},
	} {
		saved, reread := v.Closing(row.group)
		for _, c := range []struct {
			got  toolkit.Cost
			want string
		}{{saved, row.saved}, {reread, row.reread}} {
			bytes, names := 0, strings.Fields(c.want)
			for _, name := range names {
				bytes += size[name]
			}
			if c.got.Tools != len(names) || c.got.Bytes != bytes {
				t.Errorf("%s: %+v, want the %d tools %s with %d bytes", row.group, c.got, len(names), c.want, bytes)
			}
		}
	}
}

// TestCachedAdvice checks that the advice about closing groups depends on whether the provider caches.
func TestCachedAdvice(t *testing.T) {
	for cached, want := range map[bool]string{true: "leave it open as long as you may need it again", false: "close it when it no longer does"} {
		tk := newToolkit(t, toolkit.Config{Control: toolkit.ResetTools(&toolkit.ResetOptions{Cached: cached}), Groups: []toolkit.Group{group("db", "query")}})
		text := fmt.Sprint(newView(t, tk, new(toolkit.Scope)).Tools()[0].Description)
		if !strings.Contains(text, want) || strings.Contains(text, "{{") {
			t.Errorf("cached %v: %s", cached, text)
		}
	}
}
