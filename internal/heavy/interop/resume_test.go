//go:build interop

package interop

import (
	"bytes"
	"context"
	"io"
	"iter"
	"net"
	"net/http/httptest"
	"os/exec"
	"sync"
	"testing"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestTypeScriptResumes checks that the TypeScript SDK's client, whose connection is cut during a call,
// receives the remaining messages by Last-Event-ID, each one once.
func TestTypeScriptResumes(t *testing.T) {
	cut := make(chan struct{})
	count := tool.Must(tool.NewStream("count", "Counts.", func(ctx context.Context, _ struct{}) iter.Seq2[tool.Chunk, error] {
		return func(yield func(tool.Chunk, error) bool) {
			for _, word := range []string{"one", "two", "three"} {
				c := tool.Text(word)
				c.ForUser = true
				if !yield(c, nil) {
					return
				}
				select {
				case <-cut:
				case <-ctx.Done():
					return
				}
			}
			yield(tool.Text("done"), nil)
		}
	}))
	s, err := mcpserver.New(mcpserver.Config{Toolkit: toolkit.Of(count), Name: "test", Version: "1", Policy: &permission.Policy{Mode: permission.ModeBypass}})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s.Handler())
	defer h.Close()
	defer s.Close()
	url := cutAfter(t, h.Listener.Addr().String(), `"message":"one"`, cut)
	out, err := exec.CommandContext(t.Context(), "node", "resume.mjs", url).CombinedOutput()
	if want := "progress one\nprogress two\nprogress three\nresult done\n"; err != nil || string(out) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out, want)
	}
}

// cutAfter returns the URL of a proxy. When the proxy has sent the text over a connection for the first time,
// it cuts that connection and then closes cut.
func cutAfter(t *testing.T, server, text string, cut chan struct{}) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	var work sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); work.Wait() })
	pass := func(client net.Conn) {
		defer client.Close()
		back, err := net.Dial("tcp", server)
		if err != nil {
			return
		}
		defer back.Close()
		work.Go(func() {
			defer back.Close()
			_, _ = io.Copy(back, client)
		})
		var sent bytes.Buffer
		buf := make([]byte, 4096)
		for {
			n, err := back.Read(buf)
			if _, failed := client.Write(buf[:n]); err != nil || failed != nil {
				return
			}
			if sent.Write(buf[:n]); bytes.Contains(sent.Bytes(), []byte(text)) {
				first := false
				once.Do(func() { first = true })
				if first {
					_ = client.Close()
					close(cut)
					return
				}
			}
		}
	}
	work.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() { pass(client) })
		}
	})
	return "http://" + l.Addr().String()
}
