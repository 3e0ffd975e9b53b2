package mcpcontent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/message"
)

// TestContent checks for each row the block that content is converted to, and whether the content is kept for a
// gateway.
func TestContent(t *testing.T) {
	data, err := os.ReadFile("testdata/content.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var row struct {
			Why     string
			Content json.RawMessage
			Text    string // of a text block
			Bytes   string // of a data block
			Kept    bool
		}
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		b := Block(row.Content)
		switch b := b.(type) {
		case *message.Text:
			if b.Text != row.Text {
				t.Errorf("%s: text %q, want %q", row.Why, b.Text, row.Text)
			}
		case *message.Data:
			if string(b.Bytes) != row.Bytes || row.Text != "" {
				t.Errorf("%s: bytes %q, want %q", row.Why, b.Bytes, row.Bytes)
			}
		}
		kept := Keep([]json.RawMessage{row.Content})
		if (kept != nil) != row.Kept {
			t.Errorf("%s: kept %s, want %v", row.Why, kept, row.Kept)
		}
		res := &message.ToolResult{Blocks: message.Blocks{b}, Meta: map[string]json.RawMessage{Key: kept}}
		if got := Of(res)[0]; (got != nil) != row.Kept || row.Kept && string(got) != string(row.Content) {
			t.Errorf("%s: got %s back, want the original", row.Why, got)
		}
	}
}

// TestChangedBlocks checks that kept content is dropped for a block that was changed.
func TestChangedBlocks(t *testing.T) {
	link := func(uri string) json.RawMessage {
		return json.RawMessage(`{"type":"resource_link","uri":"` + uri + `","name":"n"}`)
	}
	content := []json.RawMessage{json.RawMessage(`{"type":"text","text":"plain"}`), link("a:1"), link("b:2")}
	blocks := func() message.Blocks {
		return message.Blocks{Block(content[0]), Block(content[1]), Block(content[2])}
	}
	secret := &message.Text{Text: "[removed]"}
	note := &message.Text{Text: "a note"}
	for _, row := range []struct {
		why    string
		blocks message.Blocks
		want   string
	}{
		{"unchanged", blocks(), "- a:1 b:2"},
		{"one is changed", message.Blocks{blocks()[0], secret, blocks()[2]}, "- - b:2"},
		{"one is added", append(message.Blocks{note}, blocks()...), "- - a:1 b:2"},
		{"one is removed", blocks()[1:], "a:1 b:2"},
		{"two are swapped", message.Blocks{blocks()[0], blocks()[2], blocks()[1]}, "- - -"},
		{"all are removed", nil, ""},
	} {
		res := &message.ToolResult{Blocks: row.blocks, Meta: map[string]json.RawMessage{Key: Keep(content)}}
		var got []string
		for _, raw := range Of(res) {
			var l struct{ URI string }
			_ = json.Unmarshal(raw, &l)
			if raw == nil {
				l.URI = "-"
			}
			got = append(got, l.URI)
		}
		if s := strings.Join(got, " "); s != row.want {
			t.Errorf("%s: %s, want %s", row.why, s, row.want)
		}
	}
	for _, odd := range []string{`7`, `{}`, `[7,"x",null,[]]`, `[{}]`, `[`} {
		res := &message.ToolResult{Blocks: blocks(), Meta: map[string]json.RawMessage{Key: json.RawMessage(odd)}}
		for _, raw := range Of(res) {
			if raw != nil {
				t.Errorf("%s is interpreted as the content %s", odd, raw)
			}
		}
	}
}

// TestCostOfChangedBlocks checks that the work is linear in the size of a server's result: each piece of
// content is read once, even if it no longer matches a block.
func TestCostOfChangedBlocks(t *testing.T) {
	cost := func(pieces int) float64 {
		var content []json.RawMessage
		blocks := message.Blocks{&message.Text{Text: "a note"}}
		for i := range pieces {
			content = append(content, fmt.Appendf(nil, `{"type":"resource_link","uri":"a:%d","name":"n"}`, i))
			blocks = append(blocks, &message.Text{Text: "[removed]"})
		}
		res := &message.ToolResult{Blocks: blocks, Meta: map[string]json.RawMessage{Key: Keep(content)}}
		return testing.AllocsPerRun(1, func() { Of(res) })
	}
	if few, many := cost(100), cost(400); many > 5*few {
		t.Errorf("%v allocations for 100 pieces, %v for 400", few, many)
	}
}

// TestSameContent checks that equal pieces are matched with equal blocks in order.
func TestSameContent(t *testing.T) {
	link := json.RawMessage(`{"type":"resource_link","uri":"a:1","name":"n"}`)
	image := json.RawMessage(`{"type":"image","mimeType":"image/png","data":"AA==","_meta":{"a":1}}`)
	res := &message.ToolResult{
		Blocks: message.Blocks{Block(link), &message.Text{Text: "a note"}, Block(image), Block(link), Block(image), Block(image), Block(link)},
		Meta:   map[string]json.RawMessage{Key: Keep([]json.RawMessage{link, image, link, image, link})},
	}
	want := []json.RawMessage{link, nil, image, link, image, nil, link}
	if got := Of(res); !reflect.DeepEqual(got, want) {
		t.Errorf("%s", got)
	}
}

// TestJustText checks that content is converted in the same way with and without the fast path.
func TestJustText(t *testing.T) {
	for _, value := range []string{`"a"`, `""`, `"a \" \\"`, `"\u0041\ud83d\ude00"`, `null`, `1`, `"a","text":"b"`, `"a","_meta":{}`, `"a","annotations":{"priority":1}`, `["a"]`} {
		usual := json.RawMessage(`{"type":"text","text":` + value + `}`)
		other := json.RawMessage(`{"type":"text", "text":` + value + `}`)
		a, b := Block(usual).(*message.Text).Text, Block(other).(*message.Text).Text
		if a != b && a != string(usual) || mustKeep(usual) != mustKeep(other) {
			t.Errorf("%s: %q, in another encoding %q", usual, a, b)
		}
	}
}
