package main

import (
	"fmt"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestUIOpen gives the browser a path that leads to the page once, as other users see its arguments.
func TestUIOpen(t *testing.T) {
	dir := workspace(t)
	seen := filepath.Join(dir, "seen")
	script := "#!/bin/sh\necho \"$1\" >" + seen + ".new && mv " + seen + ".new " + seen + "\n"
	if err := os.WriteFile(filepath.Join(dir, "xdg-open"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	c := startUI(t, "--open")
	var given []byte
	for given == nil {
		given, _ = os.ReadFile(seen) // until the browser is started
		time.Sleep(10 * time.Millisecond)
	}
	url := strings.TrimSpace(string(given))
	if strings.Contains(url, "token") {
		t.Errorf("the browser is started with %s", url)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c.http.Jar = jar
	for _, want := range []string{"200 /", "410 "} {
		resp, err := c.http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := fmt.Sprint(resp.StatusCode, " ", resp.Request.URL); !strings.HasPrefix(got, want[:3]) || !strings.HasSuffix(got, want[4:]) {
			t.Errorf("GET %s leads to %s, want %s", url, got, want)
		}
	}
}
