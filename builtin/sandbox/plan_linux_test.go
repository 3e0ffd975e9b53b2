//go:build amd64 || arm64

package sandbox

import (
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCoder holds that every field is handed over, and nothing that was cut off is taken.
func TestCoder(t *testing.T) {
	var p, gotPlan plan
	var r, gotReport report
	for _, c := range []struct {
		sent, got interface{ code(*coder) }
	}{{&p, &gotPlan}, {&r, &gotReport}} {
		fill(reflect.ValueOf(c.sent).Elem(), new(int))
		data := encode(c.sent)
		rest, err := decode(append(data, "next"...), c.got)
		if err != nil || string(rest) != "next" || !reflect.DeepEqual(c.got, c.sent) {
			t.Errorf("sent %+v, got %+v, %q, %v", c.sent, c.got, rest, err)
		}
		for n := range data {
			if _, err := decode(data[:n], c.got); err == nil {
				t.Errorf("%T: %d of %d bytes are enough", c.sent, n, len(data))
			}
		}
		for i := range data { // a length that is not true
			wrong := slices.Clone(data)
			wrong[i] ^= 0xff
			decode(wrong, c.got)
		}
	}
}

// fill gives every field a value of its own.
func fill(v reflect.Value, n *int) {
	*n++
	if !v.CanSet() {
		return // found out by the receiver
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.String:
		v.SetString(string(rune('a'+*n)) + "\x00é")
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.SetInt(int64(*n))
	}
}

// TestDeny runs the filter for each number there is and some that there are not.
func TestDeny(t *testing.T) {
	for _, calls := range [][]uint32{nil, {0}, {5}, {5, 6, 7}, {7, 5, 5, 1}, deniedAlways, slices.Concat(deniedAlways, deniedAlwaysArch, deniedInRead, deniedInReadArch)} {
		f := append(deny(calls), ret(retAllow))
		for nr := range uint32(newestCall + 50) {
			want := uint32(retAllow)
			if slices.Contains(calls, nr) {
				want = retEPERM
			}
			if got := decideOn(t, f, nr); got != want {
				t.Errorf("call %d of %v: %#x, want %#x", nr, calls, got, want)
			}
		}
	}
}

// decideOn does what the kernel would with the number loaded.
func decideOn(t *testing.T, f []unix.SockFilter, nr uint32) uint32 {
	for i := 0; i < len(f); i++ {
		switch in := f[i]; in.Code {
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		case unix.BPF_JMP | unix.BPF_JA:
			i += int(in.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			if nr >= in.K {
				i += int(in.Jt)
			} else {
				i += int(in.Jf)
			}
		default:
			t.Fatalf("instruction %+v", in)
		}
	}
	t.Fatal("no answer")
	return 0
}
