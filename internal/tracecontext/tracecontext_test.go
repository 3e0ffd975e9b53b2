package tracecontext

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
)

func TestMeta(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, row := range []struct {
		name, meta string
		want       map[string]any
	}{
		{"all", `{"traceparent":"` + parent + `","tracestate":"a=1","baggage":"k=v","progressToken":1}`, map[string]any{"traceparent": parent, "tracestate": "a=1", "baggage": "k=v"}},
		{"no parent", `{"tracestate":"a=1","baggage":"k=v"}`, map[string]any{"baggage": "k=v"}},
		{"not a parent", `{"traceparent":"x","tracestate":"a=1"}`, map[string]any{}},
		{"a version that is never valid", `{"traceparent":"ff` + parent[2:] + `","tracestate":"a=1"}`, map[string]any{}},
		{"a trace of zeros", `{"traceparent":"00-` + strings.Repeat("0", 32) + `-b7ad6b7169203331-01"}`, map[string]any{}},
		{"a span of zeros", `{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-` + strings.Repeat("0", 16) + `-01"}`, map[string]any{}},
		{"other types", `{"traceparent":5,"tracestate":{},"baggage":[]}`, map[string]any{}},
		{"control characters", `{"traceparent":"` + parent + `","tracestate":"a\r\nb","baggage":"a\u0000"}`, map[string]any{"traceparent": parent}},
		{"too long", `{"baggage":"` + strings.Repeat("x", 8193) + `"}`, map[string]any{}},
		{"not an object", `[]`, map[string]any{}},
		{"null", `null`, map[string]any{}},
	} {
		var c Context
		if err := json.Unmarshal([]byte(row.meta), &c); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		got := map[string]any{}
		if text, err := json.Marshal(struct{ Context }{c}); err != nil || json.Unmarshal(text, &got) != nil {
			t.Errorf("%s: %s, %v", row.name, text, err)
		}
		if !maps.Equal(got, row.want) {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
}
