package server

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/allocs"
	"github.com/fastadmit/fastadmit/internal/registration/pathtoken"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestPathTokens has calls with a path token, which must not appear in answers or logs.
func TestPathTokens(t *testing.T) {
	first, second, longest := pathtoken.New(), pathtoken.New(), strings.Repeat("z", pathtoken.LengthMax)
	file := filepath.Join(t.TempDir(), "tokens")
	servertest.WriteFile(t, file, first+"\n\n"+longest+"\n")
	s := serve(t, "AlwaysDeny", nil, func(s *setup) { s.Callers.PathTokenFile = file })
	all := [][]byte{[]byte(first), []byte(second), []byte(longest)}
	f := func(code int, path, want string) {
		t.Helper()
		response, body := s.Open(t).Send(servertest.Request(path, corpus.MustRead(servertest.PodCreate)))
		if response.StatusCode != code || !bytes.Contains(body, []byte(want)) {
			t.Errorf("%s: got %s %s, want %d with %s", path, response.Status, body, code, want)
		}
		for _, token := range all {
			if bytes.Contains(body, token) {
				t.Errorf("%s: got a token in %s", path, body)
			}
		}
	}
	const denied, unknown = `"allowed":false`, `"message":"path: want a path token before /mutate or /validate`
	for _, path := range []string{"/validate", "/validate/fail?timeout=1s", "/mutate/alwaysdeny", "/mutate/AlwaysDeny"} {
		f(200, "/"+first+path, denied)
		f(200, "/"+longest+path, denied)
		f(401, path, unknown)
		f(401, "/"+second+path, unknown)
		f(401, "/"+first+"x"+path, unknown)
		f(401, "/"+first[1:]+path, unknown)
		f(401, "/"+strings.ToUpper(first)+path, unknown)
		f(401, "//"+first+path, unknown)
		f(401, "/./"+first+path, unknown)
		f(401, "https://a/"+first+path, unknown)
		f(401, "/%"+fmt.Sprintf("%x", first[0])+first[1:]+path, unknown)
	}
	f(401, "/", unknown)
	f(401, "/"+longest+"z/validate", unknown)
	f(404, "/"+first, `path: got \"\", want /mutate or /validate`)
	f(404, "/"+first+"/validate/other", `plugin \"other\" is not enabled`)
	f(404, "/"+first+"/x", `path: got \"/x\", want`)
	f(404, "/"+first+"/"+longest+"/x", `path: got \"/.../x\", want`)

	for _, line := range []string{"POST /" + first + "/validate\r\n", "POST /" + first + "/validate HTTP/1.1\r\n" + first + "\r\n"} {
		response, body := s.Open(t).Send([]byte(line + "\r\n"))
		if response.StatusCode != http.StatusBadRequest ||
			!bytes.Contains(body, []byte(`"cannot read the HTTP request: error when reading request headers: `)) ||
			bytes.Contains(body, all[0]) {
			t.Errorf("%q: got %s %s, want 400 without the token", line, response.Status, body)
		}
	}

	// Without a token, the body is not read, and need not be sent.
	response, _ := s.Open(t).Send([]byte("POST /validate HTTP/1.1\r\nHost: a\r\nContent-Type: " +
		"application/json\r\nContent-Length: 30000000\r\n\r\n"))
	if response.StatusCode != http.StatusUnauthorized || !response.Close {
		t.Errorf("without a body: got %s", response.Status)
	}

	servertest.WriteFile(t, file, second)
	if err := s.server.callers.Load(); err != nil {
		t.Fatal(err)
	}
	f(200, "/"+second+"/validate", denied)
	f(401, "/"+first+"/validate", unknown)
	servertest.WriteFile(t, file, first+"\n"+second+"-\n")
	want := "cannot load the credentials of callers: --path-token-file: " + file + ": line 2: got a path token whose character 27 is no"
	if err := s.server.callers.Load(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), second) {
		t.Errorf("got %v, want %s", err, want)
	}
	f(200, "/"+second+"/validate", denied)
	for _, text := range []string{s.Log.String(), s.Get(t, "/metrics", 200), s.Get(t, "/readyz?verbose", 200)} {
		for _, token := range all {
			if strings.Contains(text, string(token)) {
				t.Errorf("got a token in %s", text)
			}
		}
	}
	if !strings.Contains(s.Log.String(), `"msg":"denied","endpoint":"validate"`) {
		t.Errorf("got log %s, want denials without a token", s.Log.String())
	}
}

// TestPathTokensUnasked has a server without path tokens: paths are unchanged. A segment
// that may be a token of another replica is not shown to users.
func TestPathTokensUnasked(t *testing.T) {
	s, token := serve(t, "AlwaysPullImages", nil), pathtoken.New()
	response, body := s.Open(t).Send(servertest.Request("/"+token+"/validate", corpus.MustRead(servertest.PodCreate)))
	if response.StatusCode != http.StatusNotFound || !bytes.Contains(body, []byte(`path: got \"/.../validate\", want`)) {
		t.Errorf("got %s %s, want 404 without the token", response.Status, body)
	}
}

// TestPathTokensWithOthers requires other credentials, too.
func TestPathTokensWithOthers(t *testing.T) {
	token := pathtoken.New()
	s := serve(t, "AlwaysPullImages", nil, func(s *setup) {
		s.Callers.PathTokenFile = servertest.TempFile(t, "tokens", token)
		s.Callers.TokenFile = servertest.TempFile(t, "tokens.csv", "secret,a,1\n")
	})
	f := func(code int, path, want string, headers ...string) {
		t.Helper()
		response, body := s.Open(t).Send(servertest.Request(path, corpus.MustRead(servertest.PodCreate),
			append(headers, "Content-Type: application/json")...))
		if response.StatusCode != code || !bytes.Contains(body, []byte(want)) {
			t.Errorf("%s: got %s %s, want %d with %s", path, response.Status, body, code, want)
		}
	}
	f(200, "/"+token+"/mutate", `"allowed":true`, "Authorization: Bearer secret")
	f(401, "/validate", `"path: want`, "Authorization: Bearer secret")
	f(401, "/"+token+"/validate", `"Authorization: want`)
}

// TestPathTokensManaged accepts the tokens of managed registration, and none before these
// are known.
func TestPathTokensManaged(t *testing.T) {
	c := &Callers{Managed: true}
	if err := c.Load(); err != nil {
		t.Fatal(err)
	}
	a, b := pathtoken.New(), pathtoken.New()
	f := func(uri string, want bool) {
		t.Helper()
		var header fasthttp.RequestHeader
		header.SetRequestURI(uri)
		if got := c.knows(&header); got != want {
			t.Errorf("%s: got %v, want %v", uri, got, want)
		}
	}
	f("/mutate/fail", false)
	f("/"+a+"/mutate", false)
	f("/", false)
	c.AcceptPathTokens([]string{a}, true)
	f("/mutate/fail?timeout=5s", true)
	f("/validate", true)
	f("/"+a+"/mutate", true)
	f("/"+b+"/mutate", false)
	f("/x/mutate", false)
	f("/", false)
	c.AcceptPathTokens([]string{a, b}, false)
	f("/mutate/fail", false)
	f("/"+a+"/mutate", true)
	f("/"+b+"/mutate", true)
	if got := c.FirstPathToken(); got != "" {
		t.Errorf("got %q to register with, want that managed registration knows", got)
	}
}

// TestPathTokensAllocate checks the allocations of each call.
func TestPathTokensAllocate(t *testing.T) {
	token := pathtoken.New()
	c := &Callers{PathTokenFile: servertest.TempFile(t, "tokens", token+"\n"+pathtoken.New())}
	if err := c.Load(); err != nil {
		t.Fatal(err)
	}
	var header fasthttp.RequestHeader
	header.SetRequestURI("/" + token + "/mutate/fail?timeout=5s")
	path, endpoints := []byte("/"+token+"/mutate/fail"), map[string]*endpoint{"/mutate/fail": {}}
	if n := allocs.PerRun(100, func() {
		if !c.knows(&header) || endpoints[string(c.withoutToken(path))] == nil {
			t.Fatal("not known")
		}
	}); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}

// TestConstantTime reads the source of the comparison of credentials and path tokens: the
// loop neither branches nor ends early, and both use it. Measured times would not show this
// on a shared machine.
func TestConstantTime(t *testing.T) {
	for file, wants := range map[string][]string{
		"callers.go": {
			"\tfor _, want := range credentials {\n\t\tfound |= subtle.ConstantTimeCompare(got[:], want[:])\n\t}\n\treturn " +
				"found == 1\n}\n",
			"\tif l.credentials != nil && !contains(l.credentials, header.Peek(fasthttp.HeaderAuthorization)) {\n",
		},
		"callers_pathtokens.go": {"\treturn contains(p.hashes, segment)\n"},
	} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !bytes.Contains(source, []byte(want)) {
				t.Errorf("%s: got another comparison of credentials, want\n%s", file, want)
			}
		}
	}
}
