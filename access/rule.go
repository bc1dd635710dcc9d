package access

// rule is whom a rule names.
type rule struct {
	allowed    group
	old        group // whom it named before secure RBAC
	systemOnly bool  // its scope is the system
}

// Whom most rules name. Ironic's own names of them are SYSTEM_READER and so on.
const (
	readers   = systemReader | systemService | elevatedService
	members   = systemMember | elevatedService
	admins    = systemAdmin
	observers = oldAdmin | oldObserver

	projectReaders = readers | ownerReader | lesseeReader | ownerService
	projectMembers = members | systemService | ownerMember | lesseeMember
	ownerReaders   = readers | ownerReader | ownerService
	ownerMembers   = members | systemService | ownerMember | ownerService
	ownerManagers  = members | systemService | ownerAdmin | ownerManager | ownerService
	ownerAdmins    = admins | systemService | ownerAdmin | ownerManager | ownerService
	// users of a node: members of the owner's project, those who lead the lessee's.
	users       = ownerMembers | lesseeAdmin | lesseeManager
	volumeUsers = ownerManagers | lesseeAdmin | lesseeManager
	apiReaders  = anyReader | anyService
)

// rules is Ironic's default policy: that of 21.4 with the names that came later. The names lack their common beginning "baremetal:".
var rules = map[string]rule{
	"node:create":                             {allowed: admins | systemService, old: oldAdmin},
	"node:create:self_owned_node":             {allowed: anyAdmin | anyService},
	"node:list":                               {allowed: apiReaders, old: observers},
	"node:list_all":                           {allowed: readers, old: observers},
	"node:get":                                {allowed: projectReaders, old: observers},
	"node:get:filter_threshold":               {allowed: readers, old: observers},
	"node:get:last_error":                     {allowed: ownerReaders, old: observers},
	"node:get:reservation":                    {allowed: ownerReaders, old: observers},
	"node:get:driver_internal_info":           {allowed: ownerReaders, old: observers},
	"node:get:driver_info":                    {allowed: ownerReaders, old: observers},
	"node:update":                             {allowed: projectMembers, old: oldAdmin},
	"node:update:driver_info":                 {allowed: ownerMembers, old: oldAdmin},
	"node:update:properties":                  {allowed: ownerMembers, old: oldAdmin},
	"node:update:chassis_uuid":                {allowed: admins, old: oldAdmin},
	"node:update:instance_uuid":               {allowed: ownerMembers, old: oldAdmin},
	"node:update:lessee":                      {allowed: ownerMembers, old: oldAdmin},
	"node:update:owner":                       {allowed: members, old: oldAdmin},
	"node:update:driver_interfaces":           {allowed: ownerManagers, old: oldAdmin},
	"node:update:network_data":                {allowed: ownerMembers, old: oldAdmin},
	"node:update:conductor_group":             {allowed: members, old: oldAdmin},
	"node:update:name":                        {allowed: ownerMembers, old: oldAdmin},
	"node:update:retired":                     {allowed: ownerMembers, old: oldAdmin},
	"node:update:shard":                       {allowed: admins, old: oldAdmin},
	"node:update:parent_node":                 {allowed: members, old: oldAdmin},
	"node:update:disable_power_off":           {allowed: admins, old: oldAdmin},
	"node:update_extra":                       {allowed: projectMembers, old: oldAdmin},
	"node:update_instance_info":               {allowed: users, old: oldAdmin},
	"node:update_owner_provisioned":           {allowed: admins, old: oldAdmin, systemOnly: true},
	"node:disable_cleaning":                   {allowed: admins, old: oldAdmin, systemOnly: true},
	"node:delete":                             {allowed: admins, old: oldAdmin},
	"node:delete:self_owned_node":             {allowed: ownerAdmin},
	"node:validate":                           {allowed: users, old: oldAdmin},
	"node:set_maintenance":                    {allowed: users, old: oldAdmin},
	"node:clear_maintenance":                  {allowed: users, old: oldAdmin},
	"node:get_boot_device":                    {allowed: ownerManagers, old: observers},
	"node:set_boot_device":                    {allowed: ownerManagers, old: oldAdmin},
	"node:get_indicator_state":                {allowed: projectReaders, old: observers},
	"node:set_indicator_state":                {allowed: ownerMembers, old: oldAdmin},
	"node:inject_nmi":                         {allowed: ownerManagers, old: oldAdmin},
	"node:get_states":                         {allowed: projectReaders, old: observers},
	"node:set_power_state":                    {allowed: projectMembers, old: oldAdmin},
	"node:set_boot_mode":                      {allowed: projectMembers, old: oldAdmin},
	"node:set_secure_boot":                    {allowed: projectMembers, old: oldAdmin},
	"node:set_provision_state":                {allowed: users, old: oldAdmin},
	"node:set_raid_state":                     {allowed: ownerMembers, old: oldAdmin},
	"node:get_console":                        {allowed: ownerMembers, old: oldAdmin},
	"node:set_console_state":                  {allowed: ownerMembers, old: oldAdmin},
	"node:vif:list":                           {allowed: projectReaders, old: oldAdmin},
	"node:vif:attach":                         {allowed: users, old: oldAdmin},
	"node:vif:detach":                         {allowed: users, old: oldAdmin},
	"node:traits:list":                        {allowed: projectReaders, old: observers},
	"node:traits:set":                         {allowed: ownerManagers, old: oldAdmin},
	"node:traits:delete":                      {allowed: ownerManagers, old: oldAdmin},
	"node:bios:get":                           {allowed: projectReaders, old: observers},
	"node:firmware:get":                       {allowed: projectReaders, old: observers},
	"node:vmedia:get":                         {allowed: projectReaders, old: observers},
	"node:vmedia:attach":                      {allowed: projectMembers, old: oldAdmin},
	"node:vmedia:detach":                      {allowed: projectMembers, old: oldAdmin},
	"node:history:get":                        {allowed: ownerReaders, old: observers},
	"node:inventory:get":                      {allowed: ownerReaders, old: observers},
	"node:vendor_passthru":                    {allowed: admins, old: oldAdmin},
	"shards:get":                              {allowed: readers, old: observers},
	"port:get":                                {allowed: projectReaders, old: observers},
	"port:list":                               {allowed: apiReaders, old: observers},
	"port:list_all":                           {allowed: readers, old: observers},
	"port:create":                             {allowed: ownerAdmins, old: oldAdmin},
	"port:delete":                             {allowed: ownerAdmins, old: oldAdmin},
	"port:update":                             {allowed: ownerManagers, old: oldAdmin},
	"portgroup:get":                           {allowed: projectReaders, old: observers},
	"portgroup:list":                          {allowed: apiReaders, old: observers},
	"portgroup:list_all":                      {allowed: readers, old: observers},
	"portgroup:create":                        {allowed: ownerAdmins, old: oldAdmin},
	"portgroup:delete":                        {allowed: ownerAdmins, old: oldAdmin},
	"portgroup:update":                        {allowed: ownerManagers, old: oldAdmin},
	"chassis:get":                             {allowed: readers, old: observers, systemOnly: true},
	"chassis:create":                          {allowed: admins, old: oldAdmin, systemOnly: true},
	"chassis:delete":                          {allowed: admins, old: oldAdmin, systemOnly: true},
	"chassis:update":                          {allowed: members, old: oldAdmin, systemOnly: true},
	"driver:get":                              {allowed: readers, old: observers, systemOnly: true},
	"driver:get_properties":                   {allowed: readers, old: observers, systemOnly: true},
	"driver:get_raid_logical_disk_properties": {allowed: readers, old: observers, systemOnly: true},
	"driver:vendor_passthru":                  {allowed: admins, old: oldAdmin, systemOnly: true},
	"conductor:get":                           {allowed: readers, old: observers, systemOnly: true},
	"volume:list":                             {allowed: apiReaders, old: observers},
	"volume:list_all":                         {allowed: readers, old: observers},
	"volume:get":                              {allowed: projectReaders, old: observers},
	"volume:create":                           {allowed: volumeUsers, old: oldAdmin},
	"volume:delete":                           {allowed: volumeUsers, old: oldAdmin},
	"volume:update":                           {allowed: users, old: oldAdmin},
	"volume:view_target_properties":           {allowed: readers | anyAdmin, old: oldAdmin},
	"allocation:get":                          {allowed: readers | ownerReader, old: observers},
	"allocation:list":                         {allowed: apiReaders, old: observers},
	"allocation:list_all":                     {allowed: readers, old: observers},
	"allocation:create":                       {allowed: members | anyMember, old: oldAllocator},
	"allocation:create_restricted":            {allowed: members, old: oldAllocator},
	"allocation:delete":                       {allowed: members | ownerMember, old: oldAdmin},
	"allocation:update":                       {allowed: members | ownerMember, old: oldAdmin},
	"events:post":                             {allowed: admins, old: oldAdmin, systemOnly: true},
	"deploy_template:get":                     {allowed: readers, old: observers, systemOnly: true},
	"deploy_template:create":                  {allowed: admins, old: oldAdmin, systemOnly: true},
	"deploy_template:delete":                  {allowed: admins, old: oldAdmin, systemOnly: true},
	"deploy_template:update":                  {allowed: admins, old: oldAdmin, systemOnly: true},
	"runbook:get":                             {allowed: readers | ownerReader | anyService, old: observers},
	"runbook:list":                            {allowed: apiReaders, old: observers},
	"runbook:list_all":                        {allowed: readers, old: observers},
	"runbook:create":                          {allowed: members | anyManager | anyService, old: oldAdmin},
	"runbook:update":                          {allowed: members | ownerManager | anyService, old: oldAdmin},
	"runbook:delete":                          {allowed: members | ownerManager | anyService, old: oldAdmin},
	"runbook:update:public":                   {allowed: members, old: oldAdmin},
	"runbook:update:owner":                    {allowed: members, old: oldAdmin},
	"runbook:use":                             {allowed: members | ownerManager | anyService, old: oldAdmin},
	"inspection_rule:get":                     {allowed: readers, old: observers, systemOnly: true},
	"inspection_rule:create":                  {allowed: admins, old: oldAdmin, systemOnly: true},
	"inspection_rule:update":                  {allowed: admins, old: oldAdmin, systemOnly: true},
	"inspection_rule:delete":                  {allowed: admins, old: oldAdmin, systemOnly: true},
}
