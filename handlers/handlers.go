// Package handlers lists the built-in admission plugins in the order in which they run.
// The comment of each plugin's package names the source in Kubernetes v1.37.2 that it
// behaves as, or in the last release that had it.
package handlers

import (
	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/handlers/alwaysadmit"
	"github.com/fastadmit/fastadmit/handlers/alwaysdeny"
	"github.com/fastadmit/fastadmit/handlers/alwayspullimages"
	"github.com/fastadmit/fastadmit/handlers/certificateapproval"
	"github.com/fastadmit/fastadmit/handlers/certificatesigning"
	"github.com/fastadmit/fastadmit/handlers/certificatesubjectrestriction"
	"github.com/fastadmit/fastadmit/handlers/clustertrustbundleattest"
	"github.com/fastadmit/fastadmit/handlers/defaultingressclass"
	"github.com/fastadmit/fastadmit/handlers/defaultstorageclass"
	"github.com/fastadmit/fastadmit/handlers/defaulttolerationseconds"
	"github.com/fastadmit/fastadmit/handlers/denyescalatingexec"
	"github.com/fastadmit/fastadmit/handlers/denyexeconprivileged"
	"github.com/fastadmit/fastadmit/handlers/denyserviceexternalips"
	"github.com/fastadmit/fastadmit/handlers/eventratelimit"
	"github.com/fastadmit/fastadmit/handlers/extendedresourcetoleration"
	"github.com/fastadmit/fastadmit/handlers/imagepolicywebhook"
	"github.com/fastadmit/fastadmit/handlers/initializers"
	"github.com/fastadmit/fastadmit/handlers/initialresources"
	"github.com/fastadmit/fastadmit/handlers/jobvalidation"
	"github.com/fastadmit/fastadmit/handlers/limitpodhardantiaffinitytopology"
	"github.com/fastadmit/fastadmit/handlers/limitranger"
	"github.com/fastadmit/fastadmit/handlers/mutatingadmissionpolicy"
	"github.com/fastadmit/fastadmit/handlers/mutatingadmissionwebhook"
	"github.com/fastadmit/fastadmit/handlers/namespaceautoprovision"
	"github.com/fastadmit/fastadmit/handlers/namespaceexists"
	"github.com/fastadmit/fastadmit/handlers/namespacelifecycle"
	"github.com/fastadmit/fastadmit/handlers/nodedeclaredfeaturevalidator"
	"github.com/fastadmit/fastadmit/handlers/noderestriction"
	"github.com/fastadmit/fastadmit/handlers/ownerreferencespermissionenforcement"
	"github.com/fastadmit/fastadmit/handlers/persistentvolumeclaimresize"
	"github.com/fastadmit/fastadmit/handlers/persistentvolumelabel"
	"github.com/fastadmit/fastadmit/handlers/podgroupprotection"
	"github.com/fastadmit/fastadmit/handlers/podgroupworkloadexists"
	"github.com/fastadmit/fastadmit/handlers/podnodeselector"
	"github.com/fastadmit/fastadmit/handlers/podpreset"
	"github.com/fastadmit/fastadmit/handlers/podresizevalidator"
	"github.com/fastadmit/fastadmit/handlers/podsecurity"
	"github.com/fastadmit/fastadmit/handlers/podsecuritypolicy"
	"github.com/fastadmit/fastadmit/handlers/podtolerationrestriction"
	"github.com/fastadmit/fastadmit/handlers/podtopologylabels"
	"github.com/fastadmit/fastadmit/handlers/priority"
	"github.com/fastadmit/fastadmit/handlers/resourcequota"
	"github.com/fastadmit/fastadmit/handlers/runtimeclass"
	"github.com/fastadmit/fastadmit/handlers/securitycontextdeny"
	"github.com/fastadmit/fastadmit/handlers/serviceaccount"
	"github.com/fastadmit/fastadmit/handlers/storageobjectinuseprotection"
	"github.com/fastadmit/fastadmit/handlers/taintnodesbycondition"
	"github.com/fastadmit/fastadmit/handlers/validatingadmissionpolicy"
	"github.com/fastadmit/fastadmit/handlers/validatingadmissionwebhook"
)

// Options configure plugins for which kube-apiserver has flags instead of a
// configuration file.
type Options struct {
	Tolerations defaulttolerationseconds.Options
	// Version is the release of Kubernetes that is emulated.
	Version admission.Version
}

// DefaultOptions returns the default values of kube-apiserver's flags.
func DefaultOptions() Options {
	return Options{Tolerations: defaulttolerationseconds.DefaultOptions()}
}

// InTree returns the plugins in the order in which they run. The order is that of
// kube-apiserver (k8s.io/kubernetes pkg/kubeapiserver/options/plugins.go
// AllOrderedPlugins). A plugin that was removed from Kubernetes has the place that it
// had in its last release. A plugin that options.Version does not have, or whose feature gate
// is off there, stays in the table, and is not on by default.
func InTree(options Options) []admission.Plugin {
	table := all(options)
	for i := range table {
		p := &table[i]
		p.OnByDefault = p.OnByDefault && p.IsIn(options.Version) && (p.OnSince == "" || options.Version.Has(p.OnSince))
	}
	return table
}

func all(options Options) []admission.Plugin {
	return []admission.Plugin{
		alwaysadmit.Plugin(),
		securitycontextdeny.Plugin(),
		namespaceautoprovision.Plugin(),
		namespacelifecycle.Plugin(),
		namespaceexists.Plugin(),
		limitpodhardantiaffinitytopology.Plugin(),
		initialresources.Plugin(),
		podpreset.Plugin(),
		limitranger.Plugin(),
		serviceaccount.Plugin(),
		noderestriction.Plugin(),
		taintnodesbycondition.Plugin(),
		alwayspullimages.Plugin(),
		imagepolicywebhook.Plugin(),
		podsecurity.Plugin(),
		podsecuritypolicy.Plugin(),
		podnodeselector.Plugin(),
		priority.Plugin(),
		defaulttolerationseconds.Plugin(options.Tolerations),
		podtolerationrestriction.Plugin(),
		denyescalatingexec.Plugin(),
		denyexeconprivileged.Plugin(),
		eventratelimit.Plugin(),
		extendedresourcetoleration.Plugin(),
		persistentvolumelabel.Plugin(),
		defaultstorageclass.Plugin(),
		storageobjectinuseprotection.Plugin(),
		podgroupprotection.Plugin(),
		ownerreferencespermissionenforcement.Plugin(),
		persistentvolumeclaimresize.Plugin(),
		runtimeclass.Plugin(),
		certificateapproval.Plugin(),
		certificatesigning.Plugin(),
		clustertrustbundleattest.Plugin(),
		certificatesubjectrestriction.Plugin(),
		defaultingressclass.Plugin(),
		denyserviceexternalips.Plugin(),
		podtopologylabels.Plugin(),
		podgroupworkloadexists.Plugin(),
		nodedeclaredfeaturevalidator.Plugin(),
		jobvalidation.Plugin(),
		podresizevalidator.Plugin(),
		mutatingadmissionpolicy.Plugin(),
		mutatingadmissionwebhook.Plugin(),
		initializers.Plugin(),
		validatingadmissionpolicy.Plugin(),
		validatingadmissionwebhook.Plugin(),
		resourcequota.Plugin(),
		alwaysdeny.Plugin(), // the last one, as in kube-apiserver
	}
}
