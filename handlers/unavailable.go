package handlers

// Unavailable is an admission plugin of a Kubernetes release that fastadmit does not
// have.
type Unavailable struct {
	Name        string
	First, Last string // the first and last minor release that had the plugin
	Reason      string // why fastadmit does not have it, and what to enable instead
}

// NotHere returns the admission plugins of all Kubernetes releases that fastadmit does
// not have, sorted by name. testdata/releases.yaml lists the plugins of all releases.
func NotHere() []Unavailable {
	return []Unavailable{
		{"BanFlunder", "1.8", "1.37", "is an example: it denies objects of a kind that only k8s.io/sample-apiserver has"},
		{"GenericAdmissionWebhook", "1.7", "1.8", "was renamed: enable ValidatingAdmissionWebhook"},
		{"PVCProtection", "1.9", "1.9", "was renamed: enable StorageObjectInUseProtection"},
		{"SchedulingPolicy", "1.7", "1.8", "belonged to the API server of Federation, which no longer exists: it asked a policy engine in which clusters to run a ReplicaSet"},
	}
}
