package session

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"
)

// FuzzParseLog parses files with any content after the header. The records have no gap, only the first may be
// whole, and a record that is appended afterwards is read after them.
func FuzzParseLog(f *testing.F) {
	line := func(seq int64, whole bool) []byte {
		l, err := recordLines(Record{Seq: seq, Whole: whole, Data: json.RawMessage(`{"a":[1]}`), Events: []Event{{Seq: seq, Data: json.RawMessage("{}")}}},
			summary{Seq: seq, Event: seq})
		if err != nil {
			f.Fatal(err)
		}
		return l
	}
	one, two, three := line(1, true), line(2, false), line(3, true)
	for _, data := range [][]byte{
		nil, one, slices.Concat(one, two, three), slices.Concat(one, three), slices.Concat(one, two[:9]), slices.Concat(one, two[:9], two),
		slices.Concat(one, []byte("\n\x00\x00"), two), []byte("{}"), one[:len(one)-1], slices.Concat(one, []byte(`{"crc":"00000000",}`)),
	} {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file := append(header(sessionHeader, "a"), data...)
		end, err := parseLog(file, "a", 0)
		if err != nil {
			return
		}
		recs := end.recs
		for i, rec := range recs {
			if rec.Seq != end.Seq-int64(len(recs)-1-i) || rec.Whole && i > 0 {
				t.Fatalf("record %d of %d: %+v, the last is %d", i, len(recs), rec, end.Seq)
			}
		}
		if end.torn {
			file = append(file, '\n')
		}
		next := Record{Seq: end.Seq + 1, Whole: end.Seq == 0, Data: json.RawMessage("7")}
		lines, err := recordLines(next, end.summaryAfter(next, time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseLog(append(file, lines...), "a", 0)
		if err != nil || len(again.recs) == 0 || !bytes.Equal(again.recs[len(again.recs)-1].Data, next.Data) {
			t.Fatalf("after another record: %v, %v", again, err)
		}
	})
}
