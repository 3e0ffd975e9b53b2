package toolkit_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestHidden: the error when a model calls a tool that is not in its list.
func TestHidden(t *testing.T) {
	below := group("below", "deep")
	below.Parents = []string{"web"}
	both := group("files", "read_file")
	groups := []toolkit.Group{
		group("db", "query"), group("web", "fetch"), below, both,
		{Name: "archive", Description: "A.", Tools: both.Tools},
		{Name: "memory", Description: "M.", Sources: []tool.Source{&listing{names: []string{"memory__read_graph"}}}},
		{Name: "github", Description: "G.", Sources: []tool.Source{&listing{names: []string{"issue"}}}},
	}
	fewGroups := groups[:5]
	known := append(slices.Clone(fewGroups), toolkit.Group{Name: "notes", Description: "N.", Sources: []tool.Source{
		&remembered{names: []string{"mcp__notes__read_note", "mcp__notes__delete_note"}}}})
	list := &readOnly{fake{name: "list_users", text: "list_users"}}
	for _, row := range []struct {
		name    string
		groups  []toolkit.Group
		control *toolkit.Control
		open    string // groups, by names with blanks between
		call    string
		other   string // another call of the same answer: a name and arguments
		want    string
	}{
		{"closed", fewGroups, toolkit.ResetTools(nil), "", "query", "", `tool "query" is in the group "db", which is closed: call reset_tools with {"db":true} first`},
		{"the full state", fewGroups, toolkit.ResetTools(nil), "web", "query", "", `tool "query" is in the group "db", which is closed: call reset_tools with {"web":true,"db":true} first`},
		{"excluded", fewGroups, toolkit.ResetTools(nil), "web", "read_file", "", `tool "read_file" is in one of the groups archive, files, which are closed: call reset_tools with {"archive":true} first`},
		{"the parent first", fewGroups, toolkit.ResetTools(nil), "", "deep", "", `tool "deep" is in the group "below", which is closed: call reset_tools with {"web":true,"below":true} first`},
		{"in steps", fewGroups, toolkit.EnableDisable(), "db", "deep", "", `tool "deep" is in the group "below", which is closed: call enable_tools with {"groups":["web","below"]} first`},
		{"by the host", fewGroups, new(toolkit.Control), "", "query", "", `tool "query" is in the group "db", which is closed`},

		{"opened in the same answer", fewGroups, toolkit.ResetTools(nil), "", "query", `reset_tools {"db":true}`, `tool "query" is in the group "db", which opens after this step: call it again then`},
		{"the second of its groups", fewGroups, toolkit.ResetTools(nil), "", "read_file", `reset_tools {"files":true}`, `tool "read_file" is in the group "files", which opens after this step: call it again then`},
		{"enabled in the same answer", fewGroups, toolkit.EnableDisable(), "", "query", `enable_tools {"groups":["db"]}`, `tool "query" is in the group "db", which opens after this step: call it again then`},
		{"activated in the same answer", fewGroups, toolkit.PerGroup(), "", "query", `db_activate {}`, `tool "query" is in the group "db", which opens after this step: call it again then`},
		{"deactivated in the same answer", fewGroups, toolkit.PerGroup(), "", "query", `db_deactivate {}`, `tool "query" is in the group "db", which is closed: call db_activate first`},
		{"another group in the same answer", fewGroups, toolkit.ResetTools(nil), "", "query", `reset_tools {"web":true}`, `tool "query" is in the group "db", which is closed: call reset_tools with {"db":true} first`},
		{"an invalid call in the same answer", fewGroups, toolkit.ResetTools(nil), "", "query", `reset_tools {"db":true,"x":true}`, `tool "query" is in the group "db", which is closed: call reset_tools with {"db":true} first`},

		{"never listed", groups, toolkit.ResetTools(nil), "db", "memory__read_graph", "", `tool "memory__read_graph" is not in your list; it may be in the group "memory", which is closed: call reset_tools with {"db":true,"memory":true} first`},
		{"never listed, with the prefix of MCP", groups, toolkit.ResetTools(nil), "", "mcp__memory__read_graph", "", `tool "mcp__memory__read_graph" is not in your list; it may be in the group "memory", which is closed: call reset_tools with {"memory":true} first`},
		{"known from an earlier run", known, toolkit.ResetTools(nil), "", "mcp__notes__read_note", "", `tool "mcp__notes__read_note" is in the group "notes", which is closed: call reset_tools with {"notes":true} first`},
		{"known from an earlier run, another name", known, toolkit.ResetTools(nil), "", "mcp__notes__get_note", "", `there is no tool "mcp__notes__get_note"; did you mean mcp__notes__read_note? It is in the group "notes", which is closed: call reset_tools with {"notes":true} first`},
		{"known from an earlier run, from reading to writing", known, toolkit.ResetTools(nil), "", "mcp__notes__find_deleted_note", "", `there is no tool "mcp__notes__find_deleted_note"; use one from your list`},
		{"a tool of a closed group, with another name", fewGroups, toolkit.ResetTools(nil), "", "fetsch", "", `there is no tool "fetsch"; did you mean fetch? It is in the group "web", which is closed: call reset_tools with {"web":true} first`},
		{"never listed, opened in the same answer", groups, toolkit.ResetTools(nil), "", "issue", `reset_tools {"github":true}`, `tool "issue" is not in your list; it may be in the group "github", which opens after this step: call it again then`},
		{"never listed, in one of two groups", groups, toolkit.ResetTools(nil), "", "issue", "", `tool "issue" is not in your list; it may be in one of the groups memory, github, which are closed; to look into memory, call reset_tools with {"memory":true}`},
		{"a typing error", groups, toolkit.ResetTools(nil), "", "set_usr", "", `there is no tool "set_usr"; did you mean set_user?`},

		{"from reading to writing", fewGroups, toolkit.ResetTools(nil), "", "get_user", "", `there is no tool "get_user"; use one from your list`},
		{"from reading to reading", fewGroups, toolkit.ResetTools(nil), "", "find_users", "", `there is no tool "find_users"; did you mean list_users?`},
		{"to the same verb", fewGroups, toolkit.ResetTools(nil), "", "read_mails", "", `there is no tool "read_mails"; did you mean read_mail?`},
		{"from writing to writing", fewGroups, toolkit.ResetTools(nil), "", "put_user", "", `there is no tool "put_user"; did you mean set_user?`},
	} {
		tk := newToolkit(t, toolkit.Config{Control: row.control, Groups: row.groups, Exclusive: [][]string{{"web", "archive"}},
			Basic: toolkit.Group{Tools: append(fakes("set_user", "read_mail", "mark_read_mails"), list)}})
		s := new(toolkit.Scope)
		if _, err := tk.Enable(t.Context(), s, strings.Fields(row.open)...); err != nil {
			t.Fatal(err)
		}
		v := newView(t, tk, s)
		name, input, _ := strings.Cut(row.other, " ")
		_, _, err := v.Resolve(t.Context(), row.call, json.RawMessage("{}"), v.Opens(name, json.RawMessage(input))...)
		if err == nil || err.Error() != row.want {
			t.Errorf("%s:\n%v\nwant:\n%s", row.name, err, row.want)
		}
	}
}

// readOnly is a fake that only reads.
type readOnly struct{ fake }

func (r *readOnly) Info() tool.Info {
	info := r.fake.Info()
	info.ReadOnly = true
	return info
}

// remembered is a source whose tools are known from an earlier run.
type remembered struct{ names []string }

func (r *remembered) Tools(context.Context) ([]tool.Tool, error) { return fakes(r.names...), nil }
func (r *remembered) Known() []string                            { return r.names }
