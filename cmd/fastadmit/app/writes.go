package app

import (
	"fmt"
	"strings"

	"github.com/fastadmit/fastadmit/admission"
)

// checkWrites returns an error if a plugin of the chain writes to the cluster and callers are
// not authenticated.
func (o *serveOptions) checkWrites(chain *admission.Chain) error {
	if o.settings.AllowUnauthenticatedWrites || o.callers.Authenticates() {
		return nil
	}
	var writers []string
	for _, plugin := range chain.Plugins() {
		if writes := written(plugin); len(writes) > 0 {
			writers = append(writers, fmt.Sprintf("%s (%s)", plugin.Name, strings.Join(writes, ", ")))
		}
	}
	if len(writers) == 0 {
		return nil
	}
	return fmt.Errorf(`got plugins that write to the cluster when they are called, but callers are not authenticated: %s. Set one of these:
  --client-ca-file, --token-auth-file or --basic-auth-file, if you can configure kube-apiserver to present a credential to webhooks
  --path-token-file, and the path token in the paths of the webhook configurations, as fastadmit manifests --path-token-file writes it
  --cert-secret-name without --webhook-configurations and --managed-path-token=false: fastadmit makes a path token and registers itself with it
  --allow-unauthenticated-writes, if nobody but kube-apiserver reaches the port`, strings.Join(writers, ", "))
}

// written returns what a plugin writes, as in "create namespaces".
func written(plugin *admission.Plugin) (all []string) {
	for i := range plugin.Needs {
		need := &plugin.Needs[i]
		resource := need.String()
		if need.SubResource != "" {
			resource += "/" + need.SubResource
		}
		for _, verb := range need.Writes() {
			all = append(all, verb+" "+resource)
		}
	}
	return all
}
