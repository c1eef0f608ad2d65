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

// addTemplate adds a note on Pods that an object of a custom kind makes, if it is the first one of its kind.
func (v *seenRequests) addTemplate(result *report.Result) {
	version, err := schema.ParseGroupVersion(result.APIVersion)
	if err != nil || result.PodTemplate == "" && !result.MakesPods {
		return
	}
	text := "makes Pods, which are not reviewed: no --pod-template-path can name them; fastadmit audit reviews those that run"
	if result.PodTemplate != "" {
		text = fmt.Sprintf("has a template of Pods, which are not reviewed: --pod-template-path=%s.%s=%s reviews them",
			result.Resource, version.Group, result.PodTemplate)
	}
	if key := result.Resource + "." + version.Group + " " + text; !v.hasTemplates[key] {
		v.hasTemplates[key] = true
		v.templates = append(v.templates, policies.Note{
			Source: manifest.Source{File: result.File, Line: result.Line}, Text: fmt.Sprintf("%s %q %s", result.Kind, result.Name, text),
		})
	}
}

// noteTemplates returns notes on templates of Pods, if a plugin handles Pods.
func (v *seenRequests) noteTemplates(chain *admission.Chain) []policies.Note {
	pods := admission.Attributes{
		Operation: codec.Create, Resource: codec.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: "default",
	}
	handles := func(rule admission.Rule) bool { return rule.Matches(&pods) }
	if !slices.ContainsFunc(chain.Plugins(), func(p *admission.Plugin) bool { return slices.ContainsFunc(p.Rules, handles) }) {
		return nil
	}
	return v.templates
}
