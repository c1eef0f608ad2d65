package certs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/internal/registration/pathtoken"
)

// taken says which calls a replica accepts.
type taken struct {
	tokens []string
	bare   bool
}

func (r *replica) take(accepted []string, bare bool) { r.takes.Store(&taken{accepted, bare}) }

// called calls a replica at a path. A replica without path tokens does not know paths with
// one.
func (r *replica) called(path string) error {
	token := tokenIn(path, 0)
	switch takes := r.takes.Load(); {
	case takes == nil && token != "":
		return errors.New("404 Not Found")
	case takes != nil && !slices.Contains(takes.tokens, token) && (!takes.bare || token != ""):
		return errors.New("401 Unauthorized")
	}
	return nil
}

// answer answers one request, if it arrives.
func (r *replica) answer(conn io.ReadWriter) {
	request, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	status := "405 Method Not Allowed"
	if err := r.called(request.URL.Path); err != nil {
		status = err.Error()
	}
	fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Length: 0\r\n%s: %s\r\n\r\n", status, ConfigurationHeader, digest)
}

// withTokens returns the options of replicas with path tokens.
func (s *stand) withTokens() Options {
	o := s.options()
	o.PathTokens = func([]string, bool) {} // start replaces it
	o.CALife, o.LeafLife = DefaultCALife, DefaultLeafLife
	o.Configurations = withPlaceholder("a", "b")
	return o
}

func withPlaceholder(names ...string) []runtime.Object {
	all := configurations(names...)
	for i := range names {
		for _, service := range []*admissionregistrationv1.ServiceReference{
			all[0].(*admissionregistrationv1.MutatingWebhookConfiguration).Webhooks[i].ClientConfig.Service,
			all[1].(*admissionregistrationv1.ValidatingWebhookConfiguration).Webhooks[i].ClientConfig.Service,
		} {
			service.Path = new("/" + PathTokenPlaceholder + "/" + names[i])
		}
	}
	return all
}

// token returns the token in the paths of all webhooks.
func (s *stand) token() string {
	s.t.Helper()
	var all []string
	for _, kind := range configurationKinds {
		for name, w := range s.webhooks(kind.resource) {
			path := *w.ClientConfig.Service.Path
			all = append(all, tokenIn(path, 0))
			if want := withToken("/"+strings.TrimSuffix(name, ".fastadmit.io"), tokenIn(path, 0), 0); path != want {
				s.t.Errorf("got path %s, want %s", path, want)
			}
		}
	}
	if all = slices.Compact(all); len(all) != 1 {
		s.t.Fatalf("got tokens %q, want the same in all webhooks", all)
	}
	return all[0]
}

// stored returns the tokens in the Secret.
func (s *stand) stored() (texts []string) {
	s.t.Helper()
	all, err := parseTokens(s.secret()[pathTokensKey])
	if err != nil {
		s.t.Error(err)
	}
	for _, t := range all {
		texts = append(texts, t.text)
	}
	return texts
}

// checkTaken checks which calls all replicas accept.
func (s *stand) checkTaken(when string, bare bool, tokens ...string) {
	s.t.Helper()
	slices.Sort(tokens)
	for _, r := range s.running() {
		if got := r.takes.Load(); got != nil && (got.bare != bare || !slices.Equal(got.tokens, tokens)) {
			s.t.Errorf("%s: %s takes %v, want %v", when, r.address, *got, taken{tokens, bare})
		}
	}
}

// checkSecrecy checks that no token is in a log.
func (s *stand) checkSecrecy() {
	s.t.Helper()
	for _, known := range s.history() {
		for _, path := range known.paths {
			for _, r := range s.running() {
				if token := tokenIn(path, 0); token != "" && len(r.log.lines(token)) > 0 {
					s.t.Fatalf("got a token in %q", r.log.lines(token))
				}
			}
		}
	}
}

// TestPathTokens has replicas register with a token at once, and renew it when it is due. No
// call fails, even of API servers with the most outdated caches.
func TestPathTokens(t *testing.T) {
	inStand(t, func(s *stand) {
		const life = 90 * time.Minute
		turns, step := 2, 2*time.Second
		if testing.Short() {
			turns, step = 1, 10*time.Second
		}
		o := s.withTokens()
		o.PathTokenLife = life
		s.startRegistered(3, o)
		first := s.token()
		if first == "" || !slices.Equal(s.stored(), []string{first}) {
			t.Fatalf("got token %q and Secret %q, want the same", first, s.stored())
		}
		s.checkTaken("at first", false, first)
		calls := s.callers(0, 10*time.Second, 45*time.Second)
		calls.call(8*time.Minute, 10*time.Second) // so that it is due early in the loop
		for last, turn := first, 1; turn <= turns; turn++ {
			calls.call(life-10*time.Minute, 10*time.Minute)
			if s.token() != last {
				t.Errorf("%d: got a new token before the old one was due", turn)
			}
			var registered time.Time
			for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); {
				calls.call(step, step)
				if s.token() != last && registered.IsZero() {
					registered = time.Now()
				}
				// A new replica must accept the tokens that API servers may still use.
				if !registered.IsZero() && time.Since(registered) < 2*DefaultPropagation-5*time.Second && len(s.stored()) != 2 {
					t.Errorf("%d: got the old token forgotten %s after the new one was registered", turn, time.Since(registered))
					break
				}
			}
			now := s.token()
			if now == last || !slices.Equal(s.stored(), []string{now}) {
				t.Errorf("%d: got %q registered and %q stored, want the same new one", turn, now, s.stored())
			}
			s.checkTaken(fmt.Sprint(turn), false, now)
			last = now
		}
		calls.check()
		s.checkSecrecy()
		if !slices.ContainsFunc(s.running(), func(r *replica) bool {
			return !slices.Contains([]string{"0", "none"}, r.metric(`fastadmit_certificate_renewals_total{resource="path_token"}`))
		}) {
			t.Error("no renewals were counted")
		}
		for _, r := range s.running() {
			for _, line := range r.log.lines("level=WARN") {
				if !strings.Contains(line, "no endpoints") { // expected at first
					t.Errorf("got %q, want no warnings", line)
				}
			}
		}
	})
}

// TestPathTokenUpgrade starts with replicas of a version without tokens. No token is
// registered while one of these runs.
func TestPathTokenUpgrade(t *testing.T) {
	if testing.Short() {
		t.Skip("calls for hours; TestPathTokens has changes of a token")
	}
	inStand(t, func(s *stand) {
		before := s.options()
		before.CALife, before.LeafLife, before.Configurations = DefaultCALife, DefaultLeafLife, configurations("a", "b")
		s.startRegistered(2, before)
		old := s.running()
		calls := s.callers(0, 45*time.Second)
		upgraded := func(when string) {
			t.Helper()
			calls.call(10*time.Minute, 2*time.Second)
			token := s.token()
			if token == "" || !slices.Equal(s.stored(), []string{token}) {
				t.Fatalf("%s: got token %q and %q in the Secret, want one", when, token, s.stored())
			}
			s.checkTaken(when, false, token)
		}
		s.start(s.withTokens())
		old[0].stop()
		s.start(s.withTokens())
		calls.call(10*time.Minute, 2*time.Second)
		if token := s.token(); token != "" {
			t.Fatalf("got token %q while a replica runs that does not know it", token)
		}
		if got := s.running()[1].log.lines("a replica does not take the path token: got 404"); len(got) != 1 {
			t.Errorf("got %q, want a line", got)
		}
		s.checkTaken("during the upgrade", true, s.stored()...)
		old[1].stop()
		upgraded("after the upgrade")

		// An old replica is started again. It registers at once, and the others have to
		// learn that.
		calls.check()
		again := s.start(before)
		s.settle(time.Minute)
		if token := s.token(); token != "" {
			t.Errorf("got token %q while a replica runs that does not know it", token)
		}
		s.checkTaken("after going back", true, s.stored()...)
		calls.call(10*time.Minute, 2*time.Second)
		again.stop()
		upgraded("after the second upgrade")
		calls.check()
		s.checkSecrecy()
	})
}

// TestPathTokenUnheard has a replica that does not learn a new token, because it cannot
// reach its API server.
func TestPathTokenUnheard(t *testing.T) {
	if testing.Short() {
		t.Skip("calls for hours; TestPathTokens has changes of a token")
	}
	inStand(t, func(s *stand) {
		var away atomic.Bool
		o := s.withTokens()
		s.startRegistered(2, o)
		o.Config = s.config()
		o.Config.Transport = &http.Transport{DisableKeepAlives: true,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				if away.Load() {
					return nil, errors.New("no route to the API server")
				}
				return s.network.dial(ctx, network, address)
			}}
		o.Metrics = s.options().Metrics
		s.start(o)
		s.settle(20 * time.Second)
		first := s.token()
		calls := s.callers(0, 45*time.Second)
		away.Store(true)
		s.settle(10 * time.Minute) // watches end

		data := s.secret()
		delete(data, pathTokensKey)
		s.putSecret(data)
		calls.call(10*time.Minute, 2*time.Second)
		if got := s.stored(); s.token() != first || len(got) != 2 || got[1] != first {
			t.Errorf("got a new token registered, or Secret %q, want that it waits", got)
		}
		if got := s.running()[0].log.lines("does not take the path token: got 401"); len(got) != 1 {
			t.Errorf("got %q, want a line", got)
		}
		away.Store(false)
		calls.call(10*time.Minute, 2*time.Second)
		if got := s.token(); got == first || !slices.Equal(s.stored(), []string{got}) {
			t.Error("got the first token still, want the one that all take")
		}
		calls.check()
		s.checkSecrecy()
	})
}

// TestPathTokenHealed spoils the stored and the registered tokens in all ways.
func TestPathTokenHealed(t *testing.T) {
	if testing.Short() {
		t.Skip("calls for hours; TestPathTokens has changes of a token")
	}
	inStand(t, func(s *stand) {
		s.startRegistered(2, s.withTokens())
		calls := s.callers(0, 45*time.Second)
		healed := func(what string, spoil func()) {
			t.Helper()
			before := s.token()
			spoil()
			calls.call(8*time.Minute, 2*time.Second)
			if now := s.token(); now == "" || now == before || !slices.Equal(s.stored(), []string{now}) {
				t.Errorf("%s: got token %q and %q in the Secret, want a new one", what, now, s.stored())
			}
			s.checkTaken(what, false, s.token())
		}
		healed("a deleted Secret", func() { s.remove("secrets", "certs") })
		for _, text := range []string{"", "garbage", s.token() + " yesterday\n"} {
			healed(fmt.Sprintf("tokens %q", text), func() {
				data := s.secret()
				data[pathTokensKey] = []byte(text)
				s.putSecret(data)
			})
		}
		calls.check()
		s.checkSecrecy()

		// A user removes the token from a path: it is restored, because other paths have it.
		before := s.token()
		for _, kind := range configurationKinds {
			w := s.webhooks(kind.resource)["a.fastadmit.io"]
			w.ClientConfig.Service.Path = new("/a")
			object, err := s.get(kind.resource, "fastadmit.io")
			if err != nil {
				t.Fatal(err)
			}
			changed := object.DeepCopy()
			if err := setPath(webhooks(changed)[0], "/a"); err != nil {
				t.Fatal(err)
			}
			text, err := changed.MarshalJSON()
			if err == nil {
				_, err = s.write("update", kind.resource, text, "human")
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		s.settle(10 * time.Second)
		if s.token() != before {
			t.Error("got another token, want the one that was there")
		}

		// All replicas end, so none remembers the registered token.
		for _, r := range s.running() {
			r.stop()
		}
		s.remove("secrets", "certs")
		s.startRegistered(2, s.withTokens())
		if s.token() == before {
			s.checkTaken("after the loss", false, append(s.stored(), before)...)
		}
		s.settle(10 * time.Minute)
		if now := s.token(); now == before || !slices.Equal(s.stored(), []string{now}) {
			t.Errorf("got token %q, want a new one", now)
		}
		s.checkTaken("long after the loss", false, s.token())
	})
}

// TestPathTokenUnwritten checks that no replica serves before its token is stored.
func TestPathTokenUnwritten(t *testing.T) {
	inStand(t, func(s *stand) {
		s.putSecret(secretData(t, DefaultCALife, DefaultLeafLife, serviceHost))
		s.refuseIf(func(verb, _ string) error {
			if verb == "update" {
				return errors.New("forbidden")
			}
			return nil
		})
		r := s.start(s.withTokens())
		s.settle(time.Minute)
		if err := r.ready(); err == nil || !strings.Contains(err.Error(), "cannot write Secret certs: ") {
			t.Errorf("got %v, want that the Secret cannot be written", err)
		}
		if s.webhooks(mutating.resource) != nil {
			t.Error("got a registration without a token")
		}
		s.refuseIf(nil)
		s.settle(time.Minute)
		if s.token() == "" || r.ready() != nil {
			t.Error("got no registration with a token afterwards")
		}
	})
}

func TestParseTokens(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := []token{{pathtoken.New(), now}, {strings.Repeat("z", pathtoken.LengthMax), now.Add(-time.Hour)}}
	if got, err := parseTokens(encodeTokens(want)); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	f := func(text, want string) {
		t.Helper()
		if _, err := parseTokens([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "aaa") {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
	a := strings.Repeat("a", pathtoken.LengthMin)
	f("\n", "path-tokens: line 1: got a path token of 0 characters")
	f(a, "path-tokens: line 1: got no time after the token")
	f(a+" 2026-01-02T15:04:05Z\n"+a+" now", "path-tokens: line 2: got no time after the token")
	f(strings.Repeat(a+" 2026-01-02T15:04:05Z\n", pathtoken.TokensMax+1), "got 17 tokens, want at most 16")
}

func TestWithToken(t *testing.T) {
	a, b := strings.Repeat("a", pathtoken.LengthMin), strings.Repeat("b", pathtoken.LengthMax)
	f := func(path, token string, at int, want string) {
		t.Helper()
		got := withToken(path, token, at)
		if got != want || tokenIn(got, at) != token {
			t.Errorf("%s with %q at %d: got %s with %q, want %s", path, token, at, got, tokenIn(got, at), want)
		}
		w := map[string]any{"clientConfig": map[string]any{"url": "https://x:1" + path}}
		if err := setPath(w, got); err != nil || pathOf(w) != want {
			t.Errorf("as a URL: got %v, %v, want %s", w, err, want)
		}
	}
	f("/mutate/fail", a, 0, "/"+a+"/mutate/fail")
	f("/"+a+"/mutate/fail", b, 0, "/"+b+"/mutate/fail")
	f("/"+a+"/mutate/fail", "", 0, "/mutate/fail")
	f("/mutate/fail", "", 0, "/mutate/fail")
	f("/p/q/mutate/fail", a, 2, "/p/q/"+a+"/mutate/fail")
	f("/p/"+a+"/mutate/fail", b, 1, "/p/"+b+"/mutate/fail")
}

func TestTokenOptions(t *testing.T) {
	f := func(want string, change func(o *Options)) {
		t.Helper()
		o := Options{Config: (&apiServer{network: new(inMemory)}).config(), SecretNamespace: "a", SecretName: "b",
			Hosts: []string{serviceHost}, Configurations: withPlaceholder("a", "b"), PathTokens: func([]string, bool) {}}
		change(&o)
		if _, err := New(o); err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	f("", func(*Options) {})
	f("", func(o *Options) { o.Configurations = []runtime.Object{withPlaceholder("a")[0], configurations()[1]} })
	f("got PathTokens without Configurations", func(o *Options) { o.Configurations = nil })
	f("got a path with a placeholder for a path token, want Options.PathTokens", func(o *Options) { o.PathTokens = nil })
	f("got a path without the placeholder", func(o *Options) { o.Configurations = configurations("a") })
	f("or with one elsewhere", func(o *Options) {
		webhooks := o.Configurations[0].(*admissionregistrationv1.MutatingWebhookConfiguration).Webhooks
		webhooks[1].ClientConfig.Service.Path = new("/x/path-token/a")
	})
	f("got PathTokenLife 7m59s and Propagation 1m0s, want eight times", func(o *Options) { o.PathTokenLife = 8*time.Minute - time.Second })
	f("", func(o *Options) { o.PathTokenLife = 8 * time.Minute })
}

// TestPathTokenRedacted has an API server that quotes a path in an error.
func TestPathTokenRedacted(t *testing.T) {
	inStand(t, func(s *stand) {
		s.refuseIf(func(verb, _ string) error {
			if verb == "patch" {
				return apierrors.NewBadRequest("path: Invalid value: /" + s.stored()[0] + "/a")
			}
			return nil
		})
		r := s.start(s.withTokens())
		s.settle(time.Minute)
		if got := r.log.lines("path: Invalid value: /" + PathTokenPlaceholder + "/a"); len(got) == 0 ||
			len(r.log.lines(s.stored()[0])) > 0 {
			t.Errorf("got %q, want the error without the token", r.log.lines(""))
		}
	})
}

// FuzzParseTokens reads any tokens of the Secret. Those that are read can be written and read again.
func FuzzParseTokens(f *testing.F) {
	f.Add(encodeTokens([]token{{pathtoken.New(), time.Now()}, {pathtoken.New(), time.Unix(0, 0)}}))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := parseTokens(text)
		if err != nil {
			return
		}
		again, err := parseTokens(encodeTokens(all))
		if err != nil || len(again) != len(all) {
			t.Fatalf("%q: got %v, and then %v, %v", text, all, again, err)
		}
		for i := range all {
			if again[i].text != all[i].text || !again[i].made.Equal(all[i].made.Truncate(time.Second)) {
				t.Errorf("%q: got %v, and then %v", text, all[i], again[i])
			}
		}
	})
}
