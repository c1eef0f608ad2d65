package app

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/policies"
	"github.com/fastadmit/fastadmit/internal/offline/report"
)

// A podTemplate is a template of Pods in a custom resource, which is not reviewed.
type podTemplate struct {
	flag string // the value of --pod-template-path for it, or its resource if no path can name it
	note policies.Note
}

// addTemplate adds the template of an object, if it is the first one of its kind.
func (v *seenRequests) addTemplate(result *report.Result) {
	version, err := schema.ParseGroupVersion(result.APIVersion)
	var text string
	flag := fmt.Sprintf("%s.%s", result.Resource, version.Group)
	switch {
	case err != nil:
		return
	case result.PodTemplate != "":
		flag += "=" + result.PodTemplate
		text = fmt.Sprintf("has a template of Pods, which are not reviewed: --pod-template-path=%s reviews them", flag)
	case result.MakesPods:
		text = "makes Pods, which are not reviewed: no --pod-template-path can name them; fastadmit audit reviews those that run"
	default:
		return
	}
	if slices.ContainsFunc(v.templates, func(t podTemplate) bool { return t.flag == flag }) {
		return
	}
	v.templates = append(v.templates, podTemplate{flag, policies.Note{
		Source: manifest.Source{File: result.File, Line: result.Line},
		Text:   fmt.Sprintf("%s %q %s", result.Kind, result.Name, text),
	}})
}

// noteTemplates returns notes on templates of Pods, if a plugin handles Pods.
func (v *seenRequests) noteTemplates(chain *admission.Chain) (notes []policies.Note) {
	pods := admission.Attributes{
		Operation: codec.Create, Resource: codec.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: "default",
	}
	handles := func(rule admission.Rule) bool { return rule.Matches(&pods) }
	if !slices.ContainsFunc(chain.Plugins(), func(p *admission.Plugin) bool { return slices.ContainsFunc(p.Rules, handles) }) {
		return nil
	}
	for _, template := range v.templates {
		notes = append(notes, template.note)
	}
	return notes
}
