package registration

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// notes returns the facts that operators need and that the configurations do not show.
func (o *Options) notes(plugins []Plugin) (notes []string) {
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	note("no plugin sees requests in the namespaces %s", strings.Join(o.leftOut(), ", "))
	if c := &o.ClientConfig; c.Service != nil {
		host := c.Service.Name + "." + c.Service.Namespace + ".svc"
		note("kube-apiserver calls https://%s; the serving certificate must be valid for %s",
			net.JoinHostPort(host, strconv.Itoa(int(*c.Service.Port))), host)
	} else if o.Namespace == "" {
		note("with a URL, the namespace that fastadmit runs in is not known: if it runs in this cluster, name the " +
			"namespace, so that fastadmit does not keep its own pods from starting")
	}
	if o.PathToken != "" {
		note("the paths contain a path token: whoever may read the webhook configurations can call fastadmit")
	}
	if len(o.ClientConfig.CABundle) == 0 {
		note("without a caBundle, kube-apiserver trusts the certificate authorities of its own machine only")
	}
	for i := range plugins {
		p := &plugins[i]
		atoms := p.atoms()
		if len(atoms) == 0 {
			note("%s is not registered: it handles nothing that its configured rules select", p.Name)
		}
		for _, a := range atoms {
			if a[group] == all && a[resource] == all && (a[subresource] == all || a[subresource] == "") {
				note("%s handles every resource: %s wait for fastadmit, even cluster-scoped ones, to which no "+
					"namespaceSelector applies; configure rules for the plugin to select fewer", p.Name, o.everything())
				break
			}
		}
	}
	if len(o.MatchConditions) > 0 {
		note("kube-apiserver compiles the expressions of matchConditions when it gets them; this command does not check them")
	}
	if o.Static {
		note("kube-apiserver reads mutating and validating configurations from different folders, named by staticManifestsDir " +
			"in its AdmissionConfiguration, with the feature gate ManifestBasedAdmissionControlConfig")
	}
	return notes
}

// everything lists requests that operators may not expect. kube-apiserver calls no webhook
// for webhook configurations, except one that it read from a file.
func (o *Options) everything() string {
	if o.Static {
		return "leases, events, nodes and webhook configurations"
	}
	return "leases, events and nodes"
}
