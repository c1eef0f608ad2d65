// Package imagereview decides about ImageReviews of imagepolicy.k8s.io/v1alpha1, which
// a kube-apiserver with the plugin ImagePolicyWebhook sends, by rules about
// registries, repositories, tags and digests.
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

// Policy is what the configuration says about images. An image may run if every rule
// for its namespace lets it.
type Policy struct {
	Rules []Rule `json:"rules"`
}

// Rule says which images may run in some namespaces. Tags and repositories are those
// that a container runtime would pull: nginx is docker.io/library/nginx:latest.
type Rule struct {
	// Name is shown with a refusal.
	Name string `json:"name"`
	// Namespaces are those that the rule is for, all if there are none, and
	// ExcludedNamespaces those of them that it is not for. "*" stands for any
	// characters, as in Go's path.Match.
	Namespaces         []string `json:"namespaces,omitempty"`
	ExcludedNamespaces []string `json:"excludedNamespaces,omitempty"`
	// AllowedRepositories are the only ones that images may be of, if there are any. Each
	// is a registry or a repository, and stands for all repositories below it. A
	// registry may begin with "*.", for all registries below a domain.
	AllowedRepositories []string `json:"allowedRepositories,omitempty"`
	// RefusedRepositories are those that no image may be of, written alike.
	RefusedRepositories []string `json:"refusedRepositories,omitempty"`
	// RequireDigest refuses images that are not named by their digest.
	RequireDigest bool `json:"requireDigest,omitempty"`
	// RefusedTags are those that no image may have unless it has a digest, which then
	// decides what runs. "*" stands for any characters.
	RefusedTags []string `json:"refusedTags,omitempty"`
	// Message is shown with a refusal, such as what to do.
	Message string `json:"message,omitempty"`
}

// Validate says what is wrong with the policy, which may be nil.
func (p *Policy) Validate(at *field.Path) error {
	if p == nil {
		return nil
	}
	at = at.Child("rules")
	var errs field.ErrorList
	if len(p.Rules) == 0 {
		errs = append(errs, field.Required(at, "want rules, for without one every image may run"))
	}
	known := make(map[string]bool)
	for i := range p.Rules {
		r, at := &p.Rules[i], at.Index(i)
		switch {
		case r.Name == "":
			errs = append(errs, field.Required(at.Child("name"), "the name is shown with a refusal"))
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
		errs = append(errs, field.Required(at, "want one of allowedRepositories, refusedRepositories, requireDigest and refusedTags, for the rule refuses nothing"))
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

// anyBelow begins a registry that stands for all below a domain.
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
		return errors.New("want docker.io, which is what images of it are called")
	}
	if !hasRepository {
		repository = "a"
	}
	named, err := reference.ParseNormalizedNamed(registry + "/" + repository)
	switch {
	case err != nil:
		return err
	case !reference.IsNameOnly(named):
		return errors.New("want a repository without a tag and digest")
	}
	return nil
}

// isFor says whether the rule is for a namespace.
func (r *Rule) isFor(namespace string) bool {
	matches := func(pattern string) bool { return isMatch(pattern, namespace) }
	return (len(r.Namespaces) == 0 || slices.ContainsFunc(r.Namespaces, matches)) && !slices.ContainsFunc(r.ExcludedNamespaces, matches)
}

// isMatch is path.Match for a pattern that was checked.
func isMatch(pattern, name string) bool {
	matched, err := path.Match(pattern, name)
	return matched && err == nil
}

// refusal says why an image may not run, "" if it may.
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

// isBelow says whether an image is of a registry or repository, or of one below it.
func isBelow(image reference.Named, text string) bool {
	registry, repository, hasRepository := strings.Cut(text, "/")
	if below, ok := strings.CutPrefix(registry, anyBelow); ok {
		if !strings.HasSuffix(reference.Domain(image), "."+below) {
			return false
		}
	} else if reference.Domain(image) != registry {
		return false
	}
	rest, ok := strings.CutPrefix(reference.Path(image), repository)
	return !hasRepository || ok && (rest == "" || rest[0] == '/')
}
