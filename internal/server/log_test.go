package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// hidden is a text in all parts of an object, which must not appear in the log.
const hidden = "hunter2"

// secretReview returns a review of a Secret.
func secretReview() []byte {
	encoded := base64.StdEncoding.EncodeToString([]byte(hidden))
	secret := fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"token","namespace":"shop","labels":{"a":%[1]q},
"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\\"data\\":{\\"p\\":\\"%[1]s\\"}}"}},
"type":%[1]q,"immutable":false,"stringData":{"p":%[1]q},"data":{"p":%[2]q}}`, hidden, encoded)
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1",
"kind":{"group":"","version":"v1","kind":"Secret"},"resource":{"group":"","version":"v1","resource":"secrets"},
"requestKind":{"group":"","version":"v1","kind":"Secret"},"requestResource":{"group":"","version":"v1","resource":"secrets"},
"name":"token","namespace":"shop","operation":"UPDATE","userInfo":{"username":"u","extra":{"token":[%[2]q]}},
"object":%[1]s,"oldObject":%[1]s,"dryRun":false,
"options":{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":%[2]q}}}`, secret, hidden)
}

// TestLogHasNoContents has a Secret with a patch, a denial and all kinds of failures, and
// checks that its contents are not logged.
func TestLogHasNoContents(t *testing.T) {
	read := func(review *codec.Review) string { return review.Object.Get("stringData", "p").String() }
	acts := map[string]func(review *codec.Review) admission.Result{
		"Patches": func(review *codec.Review) admission.Result {
			review.Object.SetString(read(review), "metadata", "labels", "b")
			return admission.Allowed()
		},
		"Denies": func(review *codec.Review) admission.Result {
			return admission.Denied(apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "token", errors.New("not so")))
		},
		"Misuses": func(review *codec.Review) admission.Result {
			review.Object.SetString(read(review), "data", "p", "q") // fails: it is not in an object
			return admission.Allowed()
		},
		"Writes": func(review *codec.Review) admission.Result {
			review.Object.Set("{"+read(review), "metadata", "labels")
			return admission.Allowed()
		},
		"Panics": func(review *codec.Review) admission.Result { panic("cannot read " + read(review)) },
		"PanicsWithObject": func(review *codec.Review) admission.Result {
			panic(map[string]string{"p": read(review)})
		},
		"Indexes": func(review *codec.Review) admission.Result {
			text := read(review)
			return admission.Errored(errors.New(text[:len(text)+int(text[0])]))
		},
	}
	var plugins []admission.Plugin
	var names []string
	for name, act := range acts {
		do := func(_ context.Context, review *codec.Review) admission.Result { return act(review) }
		plugins = append(plugins, admission.Plugin{
			Name: name, Rules: []admission.Rule{admission.Any()}, Mutates: true, OutOfTree: true,
			New: func(admission.Setup) (admission.Handler, error) { return admission.Handler{Admit: do}, nil },
		})
		names = append(names, name)
	}
	s := serve(t, "AlwaysDeny,"+strings.Join(names, ","), plugins)
	x := s.Open(t)
	f := func(plugin string, code int, answer, logged string) {
		t.Helper()
		response, body := x.Send(servertest.Request("/mutate/"+plugin, secretReview()))
		if response.StatusCode != code || !bytes.Contains(body, []byte(answer)) {
			t.Errorf("%s: got %s %s, want %d with %s", plugin, response.Status, body, code, answer)
		}
		// A denial is logged after the answer was written.
		servertest.Until(t, plugin+" is logged as "+logged, func() bool { return strings.Contains(s.Log.String(), logged) })
	}
	f("Patches", 200, `"patch":`, "")
	f("Denies", 200, "not so",
		`"msg":"denied","endpoint":"mutate/Denies","plugin":"Denies","uid":"u-1","user":"u","operation":"UPDATE","group":"",`+
			`"resource":"secrets",`+
			`"subresource":"","namespace":"shop","name":"token","code":403,"reason":"Forbidden",`+
			`"message":"Denies: secrets \"token\" is forbidden: not so"`)
	f("AlwaysDeny", 200, `"allowed":false`, `"msg":"denied","endpoint":"mutate/AlwaysDeny"`)
	f("Misuses", 500, "cannot edit", `"plugin":"Misuses"`)
	f("Writes", 500, "not valid JSON", `"plugin":"Writes"`)
	f("Panics", 500, "it panicked", `"plugin":"Panics","phase":"mutate","panic":"string","stack":`)
	f("PanicsWithObject", 500, "it panicked", `"panic":"map[string]string"`)
	f("Indexes", 500, "it panicked", `slice bounds out of range`)
	broken := secretReview()
	x.Send(servertest.Request("/mutate", broken[:len(broken)-2]))
	x.Send(servertest.Request("/mutate/"+hidden, broken))
	x.Send(servertest.Request("/mutate", broken, "Content-Type: text/"+hidden))
	s.end(t)

	log := s.Log.String()
	for _, contents := range []string{hidden, base64.StdEncoding.EncodeToString([]byte(hidden)), "last-applied"} {
		if strings.Contains(log, contents) {
			t.Errorf("%q of a Secret is in the log:\n%s", contents, log)
		}
	}
	for line := range strings.Lines(log) {
		var record struct{ Time, Level, Msg string }
		if err := json.Unmarshal([]byte(line), &record); err != nil || record.Time == "" || record.Level == "" || record.Msg == "" {
			t.Errorf("got %q, %v, want JSON with time, level and msg", line, err)
		}
	}
}

// TestLogIsSampled logs more lines than allowed.
func TestLogIsSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		log := NewLog(&b)
		lines := func(n int) (dropped []int64) {
			b.Reset()
			for range n {
				log.Info("denied")
			}
			for line := range strings.Lines(b.String()) {
				var record struct{ Dropped int64 }
				if err := json.Unmarshal([]byte(line), &record); err != nil {
					t.Fatal(err)
				}
				dropped = append(dropped, record.Dropped)
			}
			return dropped
		}
		if got := lines(1000); len(got) != logsBurst {
			t.Errorf("got %d lines of 1000, want %d", len(got), logsBurst)
		}
		time.Sleep(time.Second)
		if got := lines(1000); len(got) != logsPerSecond || got[0] != 1000-logsBurst || got[1] != 0 {
			t.Errorf("a second later: got %d lines of 1000 and %d dropped before the first, want %d and %d", len(got), got[0],
				logsPerSecond, 1000-logsBurst)
		}
	})
}

// TestLogLinesAreBounded logs denials and failures with the longest values in a request.
func TestLogLinesAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("long lines take long; TestLogQueueIsFull has several goroutines")
	}
	act := func(review *codec.Review) admission.Result {
		err := errors.New(review.Object.Get("data").String())
		if review.Operation() == codec.Create {
			return admission.Errored(err)
		}
		return admission.Denied(err)
	}
	s := serve(t, strings.Repeat("P", 63), []admission.Plugin{{
		Name: strings.Repeat("P", 63), Rules: []admission.Rule{admission.Any()}, Validates: true, OutOfTree: true,
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Validate: func(_ context.Context, review *codec.Review) admission.Result { return act(review) }}, nil
		},
	}})
	x := s.Open(t)
	for _, character := range []string{"a", "\x00", "\"", "\u009b", "\u202e", "\u200b", "\u3164", "\U000e0100", "é", "\U000e0001", "<"} {
		for _, operation := range []string{"CREATE", "UPDATE"} {
			text, err := json.Marshal(strings.Repeat(character, 1<<18/len(character)))
			if err != nil {
				t.Fatal(err)
			}
			long := string(text)
			review := fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":%[1]s,
"kind":{"group":%[1]s,"version":%[1]s,"kind":%[1]s},"resource":{"group":%[1]s,"version":%[1]s,"resource":%[1]s},"subResource":%[1]s,
"name":%[1]s,"namespace":%[1]s,"operation":%[2]q,"userInfo":{"username":%[1]s},"object":{"data":%[1]s},"oldObject":{}}}`, long, operation)
			before := len(s.Log.String())
			_, body := x.Send(servertest.Request("/validate", []byte(review)))
			servertest.Until(t, "a line is written", func() bool { return strings.HasSuffix(s.Log.String()[before:], "\n") })
			line := s.Log.String()[before:]
			if n := strings.Count(line, "\n"); n != 1 || len(line) > 16<<10 || !json.Valid([]byte(line)) ||
				strings.ContainsFunc(line[:len(line)-1], func(r rune) bool { return !codec.IsPrintable(r) }) {
				t.Errorf("%q, %s: got %d lines of %d bytes: %.200q", character, operation, n, len(line), line)
			}
			if most := 6<<18 + 256<<10; len(body) > most {
				t.Errorf("%q, %s: got an answer of %d bytes", character, operation, len(body))
			}
			if want := fmt.Sprintf("... (truncated, %d bytes)", 1<<18/len(character)*len(character)); operation == "UPDATE" &&
				strings.Count(line, want) != 7 {
				t.Errorf("%q: got %.2000s, want %q seven times, for uid, user, group, resource, subresource, namespace and name",
					character, line, want)
			}
		}
	}
}

// TestLogValueBounds logs values at the limits.
func TestLogValueBounds(t *testing.T) {
	f := func(key, character string, n int, whole bool) {
		t.Helper()
		var b bytes.Buffer
		text := strings.Repeat(character, n)
		for _, value := range []any{text, errors.New(text)} {
			b.Reset()
			NewLog(&b).Info("denied", key, value)
			var record map[string]string
			if err := json.Unmarshal(b.Bytes(), &record); err != nil {
				t.Fatal(err)
			}
			if got := record[key]; (got == text) != whole ||
				!whole && !strings.HasSuffix(got, fmt.Sprintf("... (truncated, %d bytes)", len(text))) {
				t.Errorf("%s of %d %q: got %q", key, n, character, got)
			}
			if record["level"] != "INFO" || record["time"] == "" || record["msg"] != "denied" {
				t.Errorf("got %s", b.String())
			}
		}
	}
	for _, key := range []string{"name", "user"} {
		f(key, "a", logValueBytesMax-1, true)
		f(key, "a", logValueBytesMax, true)
		f(key, "a", logValueBytesMax+1, false)
		f(key, "\u202e", logValueBytesMax/6, true)
		f(key, "\u202e", logValueBytesMax/6+1, false)
	}
	for _, key := range []string{"message", "error"} {
		f(key, "a", logTextBytesMax-1, true)
		f(key, "a", logTextBytesMax, true)
		f(key, "a", logTextBytesMax+1, false)
	}
}
