package model_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/kitbag-go/kitbag/model/modeltest"
)

// TestVendor checks that the model of the example keeps the contract.
func TestVendor(t *testing.T) {
	served := func(answer http.HandlerFunc) *vendor {
		s := httptest.NewServer(answer)
		t.Cleanup(s.Close)
		return &vendor{url: s.URL, name: "tiny", key: "secret"}
	}
	const pieces = `{"text":"I add."} {"call":{"index":0,"id":"c","name":"add"}} {"call":{"index":0,"args":"{\"a\":2}"}} `
	modeltest.Run(t, served(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, pieces+`{"done":{}}`) }), modeltest.Options{
		Fails: served(func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, `{"error":"overloaded"}`, http.StatusServiceUnavailable)
		}),
		Hangs: served(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // then the server sees that the client left
			_, _ = io.WriteString(w, pieces)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}),
	})
	modeltest.Run(t, served(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, `{"done":{}}`) }), modeltest.Options{
		Fails: served(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, pieces) }),
	})
}
