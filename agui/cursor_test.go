package agui

import (
	"testing"
)

func FuzzCursor(f *testing.F) {
	f.Add("r1~m1~0~1~9~8~msg_A~msg_A.0~r~5~6~14")
	f.Add("r1~~0~0~0~0")
	f.Add("r~m~3~0~2~0")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseCursor(text)
		if err == nil && c.String() != text {
			t.Errorf("%q is parsed as %q", text, c)
		}
	})
}

// FuzzInput checks that no request makes the decoder panic, and that what it accepts is within the limits.
func FuzzInput(f *testing.F) {
	f.Add([]byte(`{"threadId":"t","runId":"r","messages":[{"id":"m","role":"user","content":[{"type":"image","source":{"type":"data","value":"AAAA","mimeType":"image/png"}}]}]}`))
	f.Add([]byte(`{"runId":"r","messages":[{"id":"m","role":"tool","toolCallId":"c","content":"x","error":"y"}],"tools":[{"name":"a","description":"b","parameters":{}}],"context":[{"description":"a","value":"b"}]}`))
	f.Add([]byte(`{"runId":"r","resume":[{"interruptId":"c#1","status":"resolved","payload":{"approved":true,"editedArgs":{}}}]}`))
	f.Add([]byte(`{"runId":"r","messages":[{"id":"m","role":"user","content":null}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		in, err := decodeInput(data)
		if err != nil {
			return
		}
		if len(in.Context) > maxContextItems {
			t.Errorf("%d items of context", len(in.Context))
		}
		for i := range in.Messages {
			m := &in.Messages[i]
			text, isText := m.text()
			if blocks, err := m.blocks(); err == nil && isText && blocks.Text() != text {
				t.Errorf("the text of %s is %q and %q", m.Content, blocks.Text(), text)
			}
		}
		for _, e := range in.Resume {
			if d, err := e.decision(); err == nil && e.Status == "cancelled" && d.approved() {
				t.Error("a cancelled interrupt is approved")
			}
		}
		if list, err := checkTools(in.Tools, 32); err == nil && len(list) > 32 {
			t.Errorf("%d tools", len(list))
		}
	})
}
