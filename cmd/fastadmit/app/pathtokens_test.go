package app

import (
	"bytes"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/registration/pathtoken"
)

// TestPathTokens takes calls whose path has a token, and shows the token to
// nobody.
func TestPathTokens(t *testing.T) {
	first, second, longest := pathtoken.New(), pathtoken.New(), strings.Repeat("z", pathtoken.LengthMax)
	file := filepath.Join(t.TempDir(), "tokens")
	write(t, file, first+"\n\n"+longest+"\n")
	s := serve(t, nil, "--enable-admission-plugins=AlwaysDeny", "--path-token-file="+file)
	all := [][]byte{[]byte(first), []byte(second), []byte(longest)}
	f := func(code int, path, want string) {
		t.Helper()
		response, body := s.open(t).send(request(path, corpus.MustRead(podCreate)))
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
		response, body := s.open(t).send([]byte(line + "\r\n"))
		if response.StatusCode != http.StatusBadRequest || !bytes.Contains(body, []byte(`"cannot read the HTTP request: error when reading request headers: `)) || bytes.Contains(body, all[0]) {
			t.Errorf("%q: got %s %s, want 400 without the token", line, response.Status, body)
		}
	}

	// Nothing is read of a body without a token: it need not even be sent.
	response, _ := s.open(t).send([]byte("POST /validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 30000000\r\n\r\n"))
	if response.StatusCode != http.StatusUnauthorized || !response.Close {
		t.Errorf("without a body: got %s", response.Status)
	}

	write(t, file, second)
	reloaded := func(what, want string) {
		t.Helper()
		until(t, what, func() bool { return strings.Contains(s.get(t, "/readyz?verbose", 200)+s.get(t, "/metrics", 200), want) })
	}
	reloaded("reloaded", "fastadmit_config_reload_successes_total 1\n")
	f(200, "/"+second+"/validate", denied)
	f(401, "/"+first+"/validate", unknown)
	write(t, file, first+"\n"+second+"-\n")
	reloaded("refused", "callers ok: a change was refused, the previous version stays in use: cannot load the credentials of callers: "+file+": line 2: got a path token whose character 27 is no")
	f(200, "/"+second+"/validate", denied)
	for _, text := range []string{s.log.String(), s.get(t, "/metrics", 200), s.get(t, "/readyz?verbose", 200)} {
		for _, token := range all {
			if strings.Contains(text, string(token)) {
				t.Errorf("got a token in %s", text)
			}
		}
	}
	if !strings.Contains(s.log.String(), `"msg":"denied","endpoint":"validate"`) {
		t.Errorf("got log %s, want denials without a token", s.log.String())
	}
}

// TestPathTokensUnasked has paths stay what they are where nobody asks for
// tokens. What may be one for another replica is not shown to users.
func TestPathTokensUnasked(t *testing.T) {
	s, token := serve(t, nil, "--enable-admission-plugins=AlwaysPullImages"), pathtoken.New()
	response, body := s.open(t).send(request("/"+token+"/validate", corpus.MustRead(podCreate)))
	if response.StatusCode != http.StatusNotFound || !bytes.Contains(body, []byte(`path: got \"/.../validate\", want`)) {
		t.Errorf("got %s %s, want 404 without the token", response.Status, body)
	}
}

// TestPathTokenBeside wants the other credentials as well.
func TestPathTokenBeside(t *testing.T) {
	token := pathtoken.New()
	s := serve(t, nil, "--enable-admission-plugins=AlwaysPullImages", "--path-token-file="+writeTestFile(t, "tokens", token),
		"--token-auth-file="+writeTestFile(t, "tokens.csv", "secret,a,1\n"))
	f := func(code int, path, want string, headers ...string) {
		t.Helper()
		response, body := s.open(t).send(request(path, corpus.MustRead(podCreate), append(headers, "Content-Type: application/json")...))
		if response.StatusCode != code || !bytes.Contains(body, []byte(want)) {
			t.Errorf("%s: got %s %s, want %d with %s", path, response.Status, body, code, want)
		}
	}
	f(200, "/"+token+"/mutate", `"allowed":true`, "Authorization: Bearer secret")
	f(401, "/validate", `"path: want`, "Authorization: Bearer secret")
	f(401, "/"+token+"/validate", `"Authorization: want`)
}

// TestPathTokensManaged takes what managed registration says, and nothing before
// it says something.
func TestPathTokensManaged(t *testing.T) {
	c := &callers{managed: true}
	if err := c.load(); err != nil {
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
	c.acceptPathTokens([]string{a}, true)
	f("/mutate/fail?timeout=5s", true)
	f("/validate", true)
	f("/"+a+"/mutate", true)
	f("/"+b+"/mutate", false)
	f("/x/mutate", false)
	f("/", false)
	c.acceptPathTokens([]string{a, b}, false)
	f("/mutate/fail", false)
	f("/"+a+"/mutate", true)
	f("/"+b+"/mutate", true)
	if got := c.firstPathToken(); got != "" {
		t.Errorf("got %q to register with, want that managed registration knows", got)
	}
}

// TestPathTokensAllocate checks what each call costs.
func TestPathTokensAllocate(t *testing.T) {
	token := pathtoken.New()
	c := &callers{pathTokenFile: writeTestFile(t, "tokens", token+"\n"+pathtoken.New())}
	if err := c.load(); err != nil {
		t.Fatal(err)
	}
	var header fasthttp.RequestHeader
	header.SetRequestURI("/" + token + "/mutate/fail?timeout=5s")
	path, endpoints := []byte("/"+token+"/mutate/fail"), map[string]*endpoint{"/mutate/fail": {}}
	if n := testing.AllocsPerRun(100, func() {
		if !c.knows(&header) || endpoints[string(c.withoutToken(path))] == nil {
			t.Fatal("not known")
		}
	}); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}

// TestManifestsPathToken puts the first token of the file into the paths, as
// managed registration does.
func TestManifestsPathToken(t *testing.T) {
	token := pathtoken.New()
	file := writeTestFile(t, "tokens", token+"\n"+pathtoken.New())
	f := func(want string, args ...string) {
		t.Helper()
		stdout, stderr, code := execute("", append([]string{"manifests", "--enable-admission-plugins=AlwaysPullImages"}, args...)...)
		if code != 0 || !strings.Contains(stdout, want) || !strings.Contains(stderr, "whoever may read the webhook configurations can call fastadmit") {
			t.Errorf("%q: got exit code %d, %s, %s, want %s", args, code, stdout, stderr, want)
		}
	}
	f("path: /"+token+"/mutate/fail\n", "--path-token-file="+file)
	f("url: https://a.example.com/p/"+token+"/mutate/fail\n", "--path-token-file="+file, "--url=https://a.example.com/p/")
	f("path: /"+token+"/validate/fail\n", "--config="+writeTestFile(t, "config.yaml", configHead+"server: {pathTokenFile: "+file+"}\n"))
	_, stderr, code := execute("", "manifests", "--enable-admission-plugins=AlwaysPullImages", "--path-token-file="+writeTestFile(t, "tokens", "x"))
	if code != 1 || !strings.Contains(stderr, "cannot read --path-token-file: ") {
		t.Errorf("got exit code %d, %s, want that the file is wrong", code, stderr)
	}
}
