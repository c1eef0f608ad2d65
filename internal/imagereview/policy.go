// Package imagereview answers ImageReviews of imagepolicy.k8s.io/v1alpha1, which a
// kube-apiserver with the plugin ImagePolicyWebhook sends. Rules about registries,
// repositories, tags and digests decide.
package imagereview

import (
	_ "crypto/sha256" // digests that images may have
	_ "crypto/sha512"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Policy has the rules for images. An image may run if every rule for its namespace
// allows it.
type Policy struct {
	Rules []Rule `json:"rules"`
}

// Rule defines which images may run in some namespaces. Names of images are completed
// as a container runtime does before a pull: nginx is docker.io/library/nginx:latest. All
// names of a registry's server count as the same: GHCR.IO and ghcr.io:443 are ghcr.io.
type Rule struct {
	// Name is the name of the rule. It is shown with a refusal.
	Name string `json:"name"`
	// Namespaces are the namespaces to which the rule applies. Without any, it applies to
	// all. "*" stands for any characters, as in Go's path.Match.
	Namespaces []string `json:"namespaces,omitempty"`
	// ExcludedNamespaces are namespaces to which the rule does not apply, with the same
	// patterns.
	ExcludedNamespaces []string `json:"excludedNamespaces,omitempty"`
	// AllowedRepositories are the repositories from which images may come. Without any,
	// all are allowed. An entry is a registry or a repository, and includes all
	// repositories below it. A registry that begins with "*." includes all registries
	// below a domain.
	AllowedRepositories []string `json:"allowedRepositories,omitempty"`
	// RefusedRepositories are repositories from which no image may come, in the form of
	// AllowedRepositories.
	RefusedRepositories []string `json:"refusedRepositories,omitempty"`
	// RequireDigest refuses images without a digest.
	RequireDigest bool `json:"requireDigest,omitempty"`
	// RefusedTags are tags that no image may have, unless it also has a digest, which
	// then selects the image. "*" stands for any characters.
	RefusedTags []string `json:"refusedTags,omitempty"`
	// Message is appended to a refusal, for example to say what to do.
	Message string `json:"message,omitempty"`
}

// Validate returns all errors in the policy. p may be nil. at is the path of the policy in
// the configuration file.
func (p *Policy) Validate(at *field.Path) error {
	if p == nil {
		return nil
	}
	at = at.Child("rules")
	var errs field.ErrorList
	if len(p.Rules) == 0 {
		errs = append(errs, field.Required(at, "want at least one rule; without rules, every image may run"))
	}
	known := make(map[string]bool)
	for i := range p.Rules {
		r, at := &p.Rules[i], at.Index(i)
		switch {
		case r.Name == "":
			errs = append(errs, field.Required(at.Child("name"), "want a name; refusals show it"))
		case known[r.Name]:
			errs = append(errs, field.Duplicate(at.Child("name"), r.Name))
		}
		known[r.Name] = true
		errs = append(errs, r.validate(at)...)
	}
	return errs.ToAggregate()
}

func (r *Rule) validate(at *field.Path) (errs field.ErrorList) {
	if !r.RequireDigest && len(r.AllowedRepositories)+len(r.RefusedRepositories)+len(r.RefusedTags) == 0 {
		errs = append(errs, field.Required(at, "want one of allowedRepositories, refusedRepositories, requireDigest and refusedTags; otherwise the rule refuses nothing"))
	}
	check := func(name string, list []string, check func(string) error) {
		for i, text := range list {
			if err := check(text); err != nil {
				errs = append(errs, field.Invalid(at.Child(name).Index(i), text, err.Error()))
			}
		}
	}
	check("namespaces", r.Namespaces, checkPattern)
	check("excludedNamespaces", r.ExcludedNamespaces, checkPattern)
	check("allowedRepositories", r.AllowedRepositories, checkRepository)
	check("refusedRepositories", r.RefusedRepositories, checkRepository)
	check("refusedTags", r.RefusedTags, checkPattern)
	return errs
}

var errEmpty = errors.New("got nothing, want a name")

func checkPattern(pattern string) error {
	if pattern == "" {
		return errEmpty
	}
	_, err := path.Match(pattern, "")
	return err
}

// anyBelow is the prefix of an entry that stands for all registries below a domain.
const anyBelow = "*."

func checkRepository(text string) error {
	registry, repository, hasRepository := strings.Cut(text, "/")
	registry = strings.TrimPrefix(registry, anyBelow)
	switch {
	case text == "":
		return errEmpty
	case !strings.ContainsAny(registry, ".:") && registry != "localhost":
		return fmt.Errorf("want it to begin with a registry, as in docker.io/library/%s", text)
	case registry == "index.docker.io":
		return errors.New("want docker.io, the name of this registry in image names")
	}
	if !hasRepository {
		repository = "a"
	}
	named, err := reference.ParseNormalizedNamed(registry + "/" + repository)
	switch {
	case err != nil:
		return err
	case !reference.IsNameOnly(named):
		return errors.New("want a repository without a tag or digest")
	}
	return nil
}

// isFor reports whether the rule applies to a namespace.
func (r *Rule) isFor(namespace string) bool {
	matches := func(pattern string) bool { return isMatch(pattern, namespace) }
	return (len(r.Namespaces) == 0 || slices.ContainsFunc(r.Namespaces, matches)) && !slices.ContainsFunc(r.ExcludedNamespaces, matches)
}

// isMatch is path.Match for a pattern that was checked.
func isMatch(pattern, name string) bool {
	matched, err := path.Match(pattern, name)
	return matched && err == nil
}

// dockerHub maps other names of docker.io's server to it: the one that runtimes connect to,
// and older ones.
var dockerHub = []string{"registry-1.docker.io", "index.docker.io", "registry.hub.docker.com"}

// serverOf returns one name for all names of a registry's server: in lower case, without the
// port if that is the port of HTTPS, and docker.io for Docker Hub. Otherwise an image could be
// pulled from a refused registry by another name.
func serverOf(registry string) string {
	host := strings.ToLower(registry)
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		port := strings.TrimLeft(host[i+1:], "0")
		host = strings.TrimSuffix(host[:i]+":"+port, ":443")
	}
	if slices.Contains(dockerHub, host) {
		return "docker.io"
	}
	return host
}

// refusal returns the reason why an image may not run, "" if it may.
func (r *Rule) refusal(image reference.Named) string {
	has := func(list []string) bool {
		return slices.ContainsFunc(list, func(text string) bool { return isBelow(image, text) })
	}
	switch {
	case len(r.AllowedRepositories) > 0 && !has(r.AllowedRepositories):
		return image.Name() + " is not one of the allowed repositories"
	case has(r.RefusedRepositories):
		return image.Name() + " is one of the refused repositories"
	}
	if _, ok := image.(reference.Digested); ok {
		return ""
	}
	if r.RequireDigest {
		return "it is not named by its digest"
	}
	if tagged, ok := reference.TagNameOnly(image).(reference.Tagged); ok {
		if slices.ContainsFunc(r.RefusedTags, func(pattern string) bool { return isMatch(pattern, tagged.Tag()) }) {
			return fmt.Sprintf("the tag %s is refused", tagged.Tag())
		}
	}
	return ""
}

// isBelow reports whether an image is of a registry or repository, or of one below it.
func isBelow(image reference.Named, text string) bool {
	registry, repository, hasRepository := strings.Cut(text, "/")
	from := serverOf(reference.Domain(image))
	if below, ok := strings.CutPrefix(registry, anyBelow); ok {
		if !strings.HasSuffix(from, "."+serverOf(below)) {
			return false
		}
	} else if from != serverOf(registry) {
		return false
	}
	rest, ok := strings.CutPrefix(reference.Path(image), repository)
	return !hasRepository || ok && (rest == "" || rest[0] == '/')
}
