package mcpgateway

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
)

// TestUserClients checks how many connections of users are kept, and for how long.
func TestUserClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &userClients{cfg: mcpclient.Server{Name: "crm"}, tokens: &tokenSource{web: mcpclient.HTTP{URL: "https://crm.example.com/"}}, clients: map[user]*userClient{}}
		name := func(i int) user { return user{fmt.Sprint(i), "all"} }
		open := func(i int) *userClient {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.clients[name(i)]
		}
		var all []*userClient
		for i := range maxUserClients {
			u, err := a.acquire(name(i), "")
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, u)
		}
		if same, err := a.acquire(name(0), ""); same != all[0] || err != nil {
			t.Errorf("a second call has another connection: %v", err)
		}
		if other, err := a.acquire(user{"0", "none"}, ""); err == nil || !strings.Contains(err.Error(), "too many users") {
			t.Errorf("another grant: %v %v", other, err)
		}
		a.release(all[0])
		if _, err := a.acquire(name(-1), ""); err == nil {
			t.Error("a connection in use was closed for another user")
		}
		a.release(all[1])
		if _, err := a.acquire(name(-1), ""); err != nil || open(1) != nil || open(0) != all[0] {
			t.Errorf("an idle connection was not closed for another user: %v", err)
		}
		for _, i := range []int{5, 3, 4} {
			a.release(all[i])
			time.Sleep(time.Second)
		}
		if _, err := a.acquire(name(-2), ""); err != nil || open(5) != nil || open(3) == nil || open(4) == nil {
			t.Errorf("not the connection that was idle for the longest time was closed: %v", err)
		}
		a.release(all[0])
		time.Sleep(userIdle - time.Second)
		if again, err := a.acquire(name(0), ""); again != all[0] || err != nil {
			t.Errorf("a connection was closed too early: %v", err)
		}
		time.Sleep(userIdle + time.Second)
		if open(0) != all[0] {
			t.Error("a connection in use was closed")
		}
		a.release(all[0])
		time.Sleep(userIdle + time.Second)
		synctest.Wait()
		if open(0) != nil {
			t.Error("an idle connection is kept")
		}
		a.close()
		if _, err := a.acquire(name(2), ""); err == nil || len(a.clients) > 0 {
			t.Errorf("after close there are %d connections, and %v", len(a.clients), err)
		}
		a.release(all[2]) // a call that ends late
	})
}

// TestLoginStepExpires checks that a browser must continue within ten minutes.
func TestLoginStepExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block, err := aes.NewCipher(make([]byte, 32))
		if err != nil {
			t.Fatal(err)
		}
		l := &logins{origin: "https://mcp.example.com", transient: mcpserver.NewShared()}
		if l.seal, err = cipher.NewGCMWithRandomNonce(block); err != nil {
			t.Fatal(err)
		}
		back := func() (*http.Cookie, error) {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, callbackPath+"?state=s&code=c", nil)
			if err := l.redirect(w, r, "https://login.example.com/", loginStep{Server: "crm", Begun: []byte(`{"State":"s"}`)}); err != nil {
				t.Fatal(err)
			}
			c := w.Result().Cookies()[0]
			r.AddCookie(c)
			time.Sleep(stepTime + time.Second)
			return c, l.callback(httptest.NewRecorder(), r)
		}
		c, err := back()
		if !errors.Is(err, errNotBegun) {
			t.Errorf("after %v: %v", stepTime, err)
		}
		if !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || !strings.HasPrefix(c.Name, "__Host-") || c.Path != "/" {
			t.Errorf("the cookie: %+v", c)
		}
	})
}

// TestLoginDirKeepsOldValue checks that a value that cannot be written, because the disk is full, does not replace the old one.
func TestLoginDirKeepsOldValue(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("needs /dev/full: ", err)
	}
	d := &loginDir{dir: t.TempDir()}
	if _, err := d.Swap(t.Context(), "key", nil, []byte("old"), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/full", d.file("key")+".new"); err != nil {
		t.Fatal(err)
	}
	if swapped, err := d.Swap(t.Context(), "key", []byte("old"), []byte("new"), 0); swapped || err == nil {
		t.Errorf("swapped = %v, error %v", swapped, err)
	}
	if info, err := os.Lstat(d.file("key")); err != nil || info.Size() != 3 || !info.Mode().IsRegular() {
		t.Errorf("the old value is replaced: %v, %v", info, err)
	}
}
