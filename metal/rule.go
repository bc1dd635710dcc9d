package metal

// InspectionRule acts on what an inspection found, where its conditions hold.
type InspectionRule struct {
	Record
	Description string
	Priority    int    // highest first
	Phase       string // main
	Scope       string
	Sensitive   bool // its actions are shown to nobody
	Conditions  []any
	Actions     []any // sealed by the store
}

// InspectionRuleFilter narrows a list of inspection rules; zero fields do not narrow.
type InspectionRuleFilter struct{ Phase, Scope string }
