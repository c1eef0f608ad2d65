package app

import (
	"crypto/sha256"
	"fmt"

	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/registration/pathtoken"
)

// pathTokens are what the first segment of a path must be one of.
type pathTokens struct {
	first  string // the one to register with
	hashes []credential

	// bare says that a path without a token will do as well, because
	// kube-apiserver may have no other yet.
	bare bool
}

// readPathTokens reads a file with a token on each line; "" gives nil.
func readPathTokens(file string) (*pathTokens, error) {
	if file == "" {
		return nil, nil
	}
	content, err := files.Read(file)
	if err != nil {
		return nil, err
	}
	tokens, err := pathtoken.Parse(string(content))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return newPathTokens(tokens, false), nil
}

func newPathTokens(tokens []string, bare bool) *pathTokens {
	p := &pathTokens{bare: bare}
	for _, token := range tokens {
		p.hashes = append(p.hashes, sha256.Sum256([]byte(token)))
	}
	if len(tokens) > 0 {
		p.first = tokens[0]
	}
	return p
}

// has reports whether a URI, as it stands in a request, begins with one of the
// tokens.
func (p *pathTokens) has(uri []byte) bool {
	segment := pathtoken.Of(uri)
	if p.bare && isPhase(segment) {
		return true
	}
	return contains(p.hashes, segment)
}

func isPhase(segment []byte) bool {
	return string(segment) == "mutate" || string(segment) == "validate"
}

// acceptPathTokens replaces the path tokens that managed registration makes.
func (c *callers) acceptPathTokens(tokens []string, bare bool) {
	next := *c.loaded.Load()
	next.paths = newPathTokens(tokens, bare)
	c.loaded.Store(&next)
}

// firstPathToken is what fastadmit is to be registered with, "" for nothing.
func (c *callers) firstPathToken() string {
	if loaded := c.loaded.Load(); loaded != nil && loaded.paths != nil && !c.managed {
		return loaded.paths.first
	}
	return ""
}

// withoutToken returns a path without its first segment, if that is to be a path
// token. Whether it is one of those that are good is for knows to say.
func (c *callers) withoutToken(path []byte) []byte {
	segment := pathtoken.Of(path)
	if c.loaded.Load().paths == nil || len(segment) == 0 || isPhase(segment) {
		return path
	}
	return path[1+len(segment):]
}

// behindToken returns the endpoint of a path behind its first segment.
func (s *server) behindToken(path []byte) *endpoint {
	return s.serving.Load().endpoints[string(s.callers.withoutToken(path))]
}

// redactPath returns a path to be shown to others, without what may be a path
// token.
func redactPath(path string) string {
	if segment := pathtoken.Of([]byte(path)); pathtoken.Check(string(segment)) == nil {
		return "/..." + path[1+len(segment):]
	}
	return path
}

// asks reports whether anything says who may call.
func (c *callers) asks() bool { return c.asksOtherwise() || c.pathTokenFile != "" || c.managed }

// asksOtherwise reports whether something beside path tokens says who may call.
func (c *callers) asksOtherwise() bool {
	return c.caFile != "" || c.tokenFile != "" || c.basicFile != ""
}
