package tool_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/tool"
)

type queryIn struct {
	SQL string `json:"sql"`
}

// A database has methods of both forms, and others that are no tools.
type database struct{ name string }

func (d *database) RunSQLQuery(_ context.Context, in queryIn) (string, error) {
	if in.SQL == "" {
		return "", errors.New("empty query")
	}
	return d.name + ": " + in.SQL, nil
}

func (d *database) Watch(_ context.Context, in *queryIn) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) {
		_ = yield(tool.Text("a "+in.SQL), nil) && yield(tool.Text("b"), nil)
	}
}

func (d *database) Close(context.Context) error { return nil }
func (d *database) String() string              { return d.name }

type wrongShape struct{ database }

func (wrongShape) Drop(context.Context, queryIn) string { return "" }

type sameName struct{}

func (sameName) GetURL(context.Context, queryIn) (string, error) { return "", nil }
func (sameName) GetUrl(context.Context, queryIn) (string, error) { return "", nil }

// TestMethods makes tools of a value's methods, and calls them.
func TestMethods(t *testing.T) {
	tools, err := tool.Methods(&database{"db"}, map[string]tool.Options{"Watch": {ReadOnly: true}})
	if err != nil {
		t.Fatal(err)
	}
	if len(tools) != 2 || tools[0].Info().Name != "run_sql_query" || tools[1].Info().Name != "watch" || !tools[1].Info().ReadOnly {
		t.Fatalf("got %+v", tools)
	}
	for i, want := range []string{"db: select 1", "a select 1\nb"} {
		if res, err := call(t.Context(), tools[i], `{"sql":"select 1"}`); err != nil || res.Text() != want {
			t.Errorf("got %v %v, want %q", res, err, want)
		}
	}
	if res, err := call(t.Context(), tools[0], `{"sql":""}`); err != nil || res.Text() != "empty query" {
		t.Errorf("got %v %v", res, err)
	}
}

// TestMethodsRefused has values that Methods refuses, and parts of the errors.
func TestMethodsRefused(t *testing.T) {
	for _, row := range []struct {
		v       any
		options map[string]tool.Options
		want    string
	}{
		{nil, nil, "nil"},
		{database{}, nil, "pointer"},
		{&wrongShape{}, nil, "Drop"},
		{sameName{}, nil, "both called get_url"},
		{&database{}, map[string]tool.Options{"Close": {}}, `Options for "Close"`},
		{&database{}, map[string]tool.Options{"Open": {}, "Close": {}, "Find": {}}, `Options for "Close"`},
	} {
		if _, err := tool.Methods(row.v, row.options); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("Methods(%T): %v, want %q", row.v, err, row.want)
		}
	}
}
