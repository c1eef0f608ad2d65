package app

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/wake"
)

// TestEmulatedHears checks that a newer version is adopted after enough equal answers in a row, and an
// older version at once.
func TestEmulatedHears(t *testing.T) {
	parse := func(text string) admission.Version {
		v, _, err := admission.ParseVersion(text)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	e := &emulated{answered: parse("1.34")}
	hear := func(text, want string, wantChange bool) {
		t.Helper()
		if changed := e.hear(parse(text)); changed != wantChange || e.answered.String() != want {
			t.Errorf("after %s: got %s, changed %v, want %s, %v", text, e.answered, changed, want, wantChange)
		}
	}
	for range emulatedAgreeMin - 1 {
		hear("1.35", "1.34", false)
	}
	hear("1.34", "1.34", false) // another API server
	for range emulatedAgreeMin - 1 {
		hear("1.35", "1.34", false)
	}
	hear("1.35", "1.35", true)
	hear("1.35", "1.35", false)
	hear("1.36", "1.35", false)
	hear("1.34", "1.34", true) // back
}

// TestEmulatedFollows upgrades an API server and downgrades it again.
func TestEmulatedFollows(t *testing.T) {
	var version atomic.Pointer[string] // nil while the API server does not answer
	answers := func(minor string) { version.Store(&minor) }
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.UserAgent(); got != "fastadmit" {
			t.Errorf("got User-Agent %q, want fastadmit", got)
		}
		minor := version.Load()
		if minor == nil || r.URL.Path != "/version" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, `{"major":"1","minor":%q,"gitVersion":"v1"}`, *minor)
	}))
	defer api.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],` +
		`"clusters":[{"name":"c","cluster":{"server":"` + api.URL + `"}}],"users":[{"name":"u","user":{}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	e := &emulated{log: slog.New(slog.NewTextHandler(&log, nil)), changed: wake.NewSignal()}
	chosen := func(file, want string) {
		t.Helper()
		if v, err := e.choose(t.Context(), file, &knownCluster{kubeconfig: kubeconfig}); err != nil || v.String() != want {
			t.Errorf("got version %s, %v, want %s", v, err, want)
		}
	}
	follows := func(times int, want string, wantChange bool) {
		t.Helper()
		for range times {
			e.follow(t.Context())
		}
		changed := len(e.changed) > 0
		for len(e.changed) > 0 {
			<-e.changed
		}
		if chosen("", want); changed != wantChange {
			t.Errorf("version %s: changed %v, want %v", want, changed, wantChange)
		}
	}
	chosen("", "1.37") // it does not answer
	answers("34+")
	follows(1, "1.34", true)
	answers("35")
	follows(emulatedAgreeMin-1, "1.34", false)
	follows(1, "1.35", true)
	version.Store(nil)
	follows(emulatedAgreeMin, "1.35", false)
	answers("34")
	follows(1, "1.34", true)
	chosen("1.33", "1.33") // the configuration file names one
	answers("36")
	follows(emulatedAgreeMin, "1.34", false) // the API server is not asked while the file names a version
	follows(emulatedAgreeMin, "1.36", true)
	e.flag = "1.35"
	chosen("1.33", "1.35")
	e.flag = "35"
	_, err := e.choose(t.Context(), "", &knownCluster{})
	if want := `--emulated-version: got version "35", want`; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v of a version without the major one", err)
	}
	e.flag = "1.99"
	chosen("", "1.37")
	chosen("", "1.37")
	if got := strings.Count(log.String(), "Kubernetes 1.99 cannot be emulated"); got != 1 {
		t.Errorf("got %d warnings of a newer version, want 1:\n%s", got, log.String())
	}
}
