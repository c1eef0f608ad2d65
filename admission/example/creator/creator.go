// Package creator is the admission plugin NamespaceCreator, an example.
//
// It writes the name of the user who creates a namespace into an annotation of
// the namespace, and denies changes of this annotation. Use it in clusters where
// many users create namespaces, to know whom to ask about one.
package creator

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// Config is the plugin's configuration file.
type Config struct {
	// Annotation is the key of the annotation. The default is example.com/creator.
	Annotation string `json:"annotation"`
}

// Plugin returns the plugin, for app.WithPlugin.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:      "NamespaceCreator",
		Summary:   "records who created a namespace, in an annotation",
		Rules:     []admission.Rule{admission.CreateUpdate("namespaces")},
		Mutates:   true,
		Validates: true,
		New:       newHandler,
	}
}

// validate returns what is wrong. fastadmit adds file and line.
func (c *Config) validate() (errs field.ErrorList) {
	for _, fault := range validation.IsQualifiedName(c.Annotation) {
		errs = append(errs, field.Invalid(field.NewPath("annotation"), c.Annotation, fault))
	}
	return errs
}

type plugin struct{ annotation string }

func newHandler(setup admission.Setup) (admission.Handler, error) {
	config := Config{Annotation: "example.com/creator"}
	if err := admission.DecodeConfig(setup.Config, &config, config.validate); err != nil {
		return admission.Handler{}, err
	}
	p := &plugin{annotation: config.Annotation}
	return admission.Handler{Admit: p.admit, Validate: p.validate}, nil
}

// admit overwrites an annotation in the request, so that nobody can create a
// namespace in the name of another user.
func (p *plugin) admit(_ context.Context, review *codec.Review) admission.Result {
	if review.Operation() == codec.Create {
		review.Object.SetString(review.Username(), "metadata", "annotations", p.annotation)
	}
	return admission.Allowed()
}

// validate sees the object as it will be stored, with the changes of all webhooks.
func (p *plugin) validate(_ context.Context, review *codec.Review) admission.Result {
	want := review.Username()
	if review.Operation() == codec.Update {
		want = review.OldObject.Get("metadata", "annotations", p.annotation).String()
	}
	if got := review.Object.Get("metadata", "annotations", p.annotation); got.String() != want {
		at := field.NewPath("metadata", "annotations").Key(p.annotation)
		return admission.Denied(admission.Forbidden(review, field.Invalid(at, got.String(), fmt.Sprintf("must be %q", want))))
	}
	return admission.Allowed()
}
