package policies

import (
	"slices"

	"github.com/fastadmit/fastadmit/admission"
)

// Own returns the plugins of enabled with those policies of the set that kube-apiserver evaluates itself: those of its own group. Apply has
// added the policies to enabled. isAll is true if these plugins evaluate nothing else, and have no settings.
func (s *Set) Own(enabled map[string]admission.Enabled, hasSettings func(plugin string) bool) (own map[string]admission.Enabled, isAll bool) {
	own, isAll = make(map[string]admission.Enabled), true
	for i := range kinds {
		name := kinds[i].policy
		e, ok := enabled[name]
		isOwn := func(d document) bool { return d.kind.policy == name && d.isOwn }
		if !ok || !slices.ContainsFunc(s.documents, isOwn) {
			continue
		}
		var files []admission.File
		for _, d := range slices.Concat(s.documents, s.exceptions) {
			if d.kind.policy == name && (d.isOwn || isException(d.item.GroupVersionKind())) {
				files = append(files, s.file(&d))
			}
		}
		isAll = isAll && len(files) == len(e.Manifests) && e.Config == nil && !hasSettings(name)
		e.Manifests, e.Config, e.Settings = files, nil, admission.Settings{}
		own[name] = e
	}
	return own, isAll
}
