package server

import (
	"crypto/sha256"

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
	tokens, err := pathtoken.ReadFile(file)
	if err != nil {
		return nil, err
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

// AcceptPathTokens replaces the path tokens that managed registration makes. If bare is
// true, calls without a path token are accepted too, because kube-apiserver may have no
// token yet.
func (c *Callers) AcceptPathTokens(tokens []string, bare bool) {
	next := *c.loaded.Load()
	next.paths = newPathTokens(tokens, bare)
	c.loaded.Store(&next)
}

// FirstPathToken returns the path token of PathTokenFile to register, "" for none.
func (c *Callers) FirstPathToken() string {
	if loaded := c.loaded.Load(); loaded != nil && loaded.paths != nil && !c.Managed {
		return loaded.paths.first
	}
	return ""
}

// withoutToken returns a path without its first segment, if that is to be a path
// token. Whether it is one of those that are good is for knows to say.
func (c *Callers) withoutToken(path []byte) []byte {
	segment := pathtoken.Of(path)
	if c.loaded.Load().paths == nil || len(segment) == 0 || isPhase(segment) {
		return path
	}
	return path[1+len(segment):]
}

// behindToken returns the endpoint of a path behind its first segment.
func (s *Server) behindToken(path []byte) *endpoint {
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

// Authenticates reports whether callers must have any credential.
func (c *Callers) Authenticates() bool {
	return c.AuthenticatesWithoutPathToken() || c.PathTokenFile != "" || c.Managed
}

// AuthenticatesWithoutPathToken reports whether callers must have a client certificate, a token or a
// password.
func (c *Callers) AuthenticatesWithoutPathToken() bool {
	return c.CAFile != "" || c.TokenFile != "" || c.BasicFile != ""
}
